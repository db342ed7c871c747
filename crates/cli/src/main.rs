use mimalloc as _;
fn main() {}

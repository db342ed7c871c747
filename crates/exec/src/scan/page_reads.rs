//! What is read of a page that columns are wanted of.

use datafusion::execution::TaskContext;

/// A session may have another one than the default as an extension of its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageReads {
    /// The mini-pages of these columns.
    #[default]
    Columns,
    /// All of it, as of pages whose rows stand one behind the other: what PAX is compared with.
    Whole,
}

impl PageReads {
    /// Those of a query.
    pub(crate) fn of(context: &TaskContext) -> Self {
        context.session_config().get_extension::<Self>().map_or_else(Self::default, |reads| *reads)
    }

    pub(crate) fn are_whole(self) -> bool {
        self == Self::Whole
    }
}

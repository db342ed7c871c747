//! The pages in a real browser: nothing to complain about in its console, every plot and value in its DOM, no sideways
//! scrolling on a phone, no labels on each other, light and dark.
//!
//! Needs Chromium or Chrome on the `PATH` and is skipped, with a notice, where there is none. Screenshots are left in the
//! target folder's `tmp` for whoever wants to look.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::drawn;
use crate::made_up;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nandina_report::{Page, device_page, query_page};
use serde_json::Value;

/// A browser that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

const PHONE: (u32, u32) = (360, 800);
const DESKTOP: (u32, u32) = (1200, 900);

#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    Dark,
    Light,
}

const ALL: [((u32, u32), Scheme); 4] =
    [(PHONE, Scheme::Dark), (PHONE, Scheme::Light), (DESKTOP, Scheme::Light), (DESKTOP, Scheme::Dark)];
/// Each width and each scheme once.
const SOME: [((u32, u32), Scheme); 2] = [(PHONE, Scheme::Dark), (DESKTOP, Scheme::Light)];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: no chromium, chromium-browser or google-chrome on the PATH to render pages with");
    }
    found
}

/// What a browser said: its standard output, and what it logged.
struct Said {
    output: String,
    log: String,
}

impl Said {
    /// Lines that the page wrote to the console, or was complained about in it.
    fn console(&self) -> Vec<&str> {
        self.log.lines().filter(|line| line.contains("CONSOLE")).collect()
    }
}

/// Runs the browser on a file, with a profile of its own.
fn browse(browser: &Path, file: &Path, size: (u32, u32), scheme: Scheme, task: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let (output, log) = (folder.path().join("output"), folder.path().join("log"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u32::from(scheme == Scheme::Light)))
        .arg(format!("--window-size={},{}", size.0, size.1))
        .arg(task)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser took longer than {TIMEOUT:?} for {}", file.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    let said = Said { output: text(&output), log: text(&log) };
    assert!(status.success(), "{status}: {}", said.log);
    said
}

/// Appended to a copy of a page: writes where things are into the DOM, which is all that the browser gives out.
const MEASURE: &str = r#"<pre id="layout" hidden></pre><script>
addEventListener('load', () => {
  // Tables that are folded away have to fit as well.
  document.querySelectorAll('details').forEach(e => { e.open = true; });
  const wide = document.documentElement.clientWidth;
  const scrolls = e => e.closest('.box, pre');
  const name = e => e.tagName + '.' + (e.getAttribute('class') || '') + ' ' + (e.textContent || '').slice(0, 40);
  const shown = e => e.getClientRects().length > 0;
  const outside = [...document.querySelectorAll('body *')].filter(e => shown(e) && !scrolls(e)
    && !e.closest('svg') && e.getBoundingClientRect().right > wide + 0.5).map(name);
  const drawings = [...document.querySelectorAll('svg')].filter(shown);
  const overlapping = [], cut = [];
  for (const svg of drawings) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent.trim(), e.getBoundingClientRect()]);
    texts.forEach(([a, p], i) => {
      if (p.left < frame.left - 1 || p.right > frame.right + 1 || p.top < frame.top - 1 || p.bottom > frame.bottom + 1)
        cut.push(svg.dataset.plot + ': ' + a);
      // Boxes of text have room above and below the letters.
      for (const [b, q] of texts.slice(i + 1)) {
        const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (across > 1 && down > 0.35 * Math.min(p.height, q.height)) overlapping.push(svg.dataset.plot + ': ' + a + ' / ' + b);
      }
    });
  }
  const smallest = Math.min(...drawings.flatMap(svg => [...svg.querySelectorAll('text')]
    .map(e => parseFloat(e.getAttribute('font-size')) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)), 99);
  const rgb = e => getComputedStyle(e).backgroundColor;
  console.log('layout measured');
  document.getElementById('layout').textContent = JSON.stringify({
    client: wide, scroll: document.documentElement.scrollWidth, outside, overlapping, cut, smallest,
    shown: drawings.map(svg => svg.dataset.plot), dark: matchMedia('(prefers-color-scheme: dark)').matches,
    background: rgb(document.body),
    strokes: [...new Set([...document.querySelectorAll('.series polyline')].map(e => getComputedStyle(e).stroke))],
  });
});
</script>"#;

/// A page inside of another: a browser's own window is never narrower than 500 pixels when it gives out its DOM.
fn in_a_window(page: &str, (width, height): (u32, u32)) -> String {
    let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!DOCTYPE html><html style=\"color-scheme: light dark\"><body><pre id=\"found\"></pre>\
         <iframe style=\"width:{width}px;height:{height}px;border:0\" srcdoc=\"{quoted}\"></iframe><script>\
         addEventListener('load', () => {{ document.getElementById('found').textContent = \
         document.querySelector('iframe').contentDocument.getElementById('layout').textContent; }});\
         </script></body></html>"
    )
}

/// The page's layout, measured by a script that the page's own policy would not let run.
fn layout(browser: &Path, folder: &Path, page: &Page, size: (u32, u32), scheme: Scheme) -> Value {
    let policy = page.html.find("<meta http-equiv=\"Content-Security-Policy\"").unwrap();
    let end = policy + page.html[policy..].find('>').unwrap() + 1;
    let mut copy = format!("{}{}", &page.html[..policy], &page.html[end..]);
    let body_end = copy.rfind("</body>").unwrap();
    copy.insert_str(body_end, MEASURE);
    let file = folder.join("measured.html");
    fs::write(&file, in_a_window(&copy, size)).unwrap();
    let said = browse(browser, &file, size, scheme, "--dump-dom");
    // Shows that what a page says in the console is seen here; and it is all that is said.
    let console = said.console();
    assert!(console.len() == 1 && console.iter().all(|line| line.contains("layout measured")), "{console:?}");
    let (_, rest) = said.output.split_once("<pre id=\"found\">").unwrap();
    let text = rest.split_once("</pre>").unwrap().0;
    serde_json::from_str(&text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap()
}

/// Everything that does not depend on what a page is about.
fn assert_renders(browser: &Path, name: &str, page: &Page, windows: &[((u32, u32), Scheme)]) {
    let folder = tempfile::tempdir().unwrap();
    for &(size, scheme) in windows {
        let found = layout(browser, folder.path(), page, size, scheme);
        assert_eq!(found["client"], size.0, "{name}");
        assert_eq!(found["scroll"], size.0, "{name}: the page scrolls sideways");
        assert_eq!(found["outside"], Value::Array(vec![]), "{name}: outside of the window");
        assert_eq!(found["overlapping"], Value::Array(vec![]), "{name}: labels on each other at {size:?}");
        assert_eq!(found["cut"], Value::Array(vec![]), "{name}: labels cut off at {size:?}");
        assert!(
            found["smallest"].as_f64().unwrap() > 9.0,
            "{name}: text of {} px at {size:?}",
            found["smallest"]
        );
        assert_eq!(found["dark"], scheme == Scheme::Dark, "{name}");
        let background = if scheme == Scheme::Dark { "rgb(20, 23, 28)" } else { "rgb(255, 255, 255)" };
        assert_eq!(found["background"], background, "{name}");
        // Colours are those of the style sheet, not the ones that were drawn with.
        let first = if scheme == Scheme::Dark { "rgb(63, 159, 224)" } else { "rgb(0, 114, 178)" };
        let strokes = found["strokes"].as_array().unwrap();
        assert!(strokes.is_empty() || strokes.iter().any(|stroke| stroke == first), "{name}: {strokes:?}");
        // Of two drawings of the same, one is shown.
        let mut shown: Vec<&str> =
            found["shown"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        let mut all: Vec<String> =
            drawn::drawings(&page.html).into_iter().map(|drawing| drawing.id).collect();
        all.sort_unstable();
        all.dedup();
        shown.sort_unstable();
        assert_eq!(shown, all, "{name}");
    }
}

/// The DOM of the page itself, whose console has to be empty.
fn dom(browser: &Path, page: &Page) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, &page.html).unwrap();
    let said = browse(browser, &file, DESKTOP, Scheme::Light, "--dump-dom");
    assert_eq!(said.console(), Vec::<&str>::new());
    said.output
}

fn assert_screenshots(browser: &Path, name: &str, page: &Page) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("{name}.html"));
    fs::write(&file, &page.html).unwrap();
    let mut pictures = Vec::new();
    for (size, what) in [(PHONE, "phone"), (DESKTOP, "desktop")] {
        for (scheme, light) in [(Scheme::Light, "light"), (Scheme::Dark, "dark")] {
            let picture = folder.join(format!("{name}-{what}-{light}.png"));
            browse(browser, &file, size, scheme, &format!("--screenshot={}", picture.display()));
            let bytes = fs::read(&picture).unwrap();
            let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!((number(16), number(20)), size, "{}", picture.display());
            pictures.push(bytes);
        }
    }
    pictures.dedup();
    assert_eq!(pictures.len(), 4, "{name}: light is not dark, and a phone is no desktop");
}

#[test]
fn device_pages_render() {
    let Some(browser) = browser() else { return };
    let page = device_page(&made_up::with_a_cache_that_gives_out()).unwrap();
    let json: Value = serde_json::from_str(&page.json).unwrap();
    let dom = dom(&browser, &page);
    assert_eq!(drawn::assert_device_page(&dom, &json), drawn::assert_device_page(&page.html, &json));
    assert_eq!(drawn::embedded_json(&dom), json);
    assert_renders(&browser, "device", &page, &ALL);
    assert_renders(&browser, "assumed device", &device_page(&made_up::assumed()).unwrap(), &SOME);
    assert_screenshots(&browser, "device", &page);
}

#[test]
fn query_pages_render() {
    let Some(browser) = browser() else { return };
    let page = query_page(&made_up::spilling_join()).unwrap();
    let json: Value = serde_json::from_str(&page.json).unwrap();
    let dom = dom(&browser, &page);
    assert_eq!(drawn::assert_query_page(&dom, &json), 8);
    assert_eq!(drawn::embedded_json(&dom), json);
    assert_renders(&browser, "query", &page, &ALL);
    assert_screenshots(&browser, "query", &page);
}

#[test]
fn extreme_query_pages_render() {
    let Some(browser) = browser() else { return };
    for (name, report) in [("tiny query", made_up::microseconds()), ("huge query", made_up::hours())] {
        assert_renders(&browser, name, &query_page(&report).unwrap(), &SOME);
    }
}

//! HTML that cannot be broken by what it shows.
//!
//! ```text
//!   Tag::new("td").class("number").text(name_of_device)      text and attribute values: always escaped
//!            │                       .with(another_tag)       markup: only from another `Tag`
//!            ▼
//!   Html ──► page
//! ```
//!
//! Invariant: whatever comes from outside (SQL, names of devices, details of operators) enters through [`Tag::text`] or
//! [`Tag::attribute`], which escape. Names of tags and attributes are literals of this crate. The one way around,
//! [`Html::drawn`], is for what the plotting library wrote, which escapes its own text.

use std::fmt::Display;

/// Finished markup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

impl Html {
    /// Takes over elements that a plotting backend wrote.
    pub(crate) fn drawn(elements: String) -> Self {
        Self(elements)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect())
    }
}

/// An element under construction.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    name: &'static str,
    attributes: String,
    content: String,
}

impl Tag {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: String::new(), content: String::new() }
    }

    pub(crate) fn attribute(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push(' ');
        self.attributes.push_str(name);
        self.attributes.push_str("=\"");
        escape_into(&mut self.attributes, &value.to_string());
        self.attributes.push('"');
        self
    }

    pub(crate) fn class(self, names: impl Display) -> Self {
        self.attribute("class", names)
    }

    pub(crate) fn text(mut self, text: impl Display) -> Self {
        escape_into(&mut self.content, &text.to_string());
        self
    }

    pub(crate) fn with(mut self, child: impl Into<Html>) -> Self {
        self.content.push_str(child.into().as_str());
        self
    }

    pub(crate) fn with_all<T: Into<Html>>(self, children: impl IntoIterator<Item = T>) -> Self {
        children.into_iter().fold(self, Tag::with)
    }
}

impl From<Tag> for Html {
    fn from(tag: Tag) -> Self {
        let Tag { name, attributes, content } = tag;
        // What neither has content nor an end tag in HTML.
        if matches!(name, "meta" | "br" | "hr") {
            return Self(format!("<{name}{attributes}>"));
        }
        // Blocks start on a line of their own, so that the source can be read; inside a line space would show.
        let line =
            if matches!(name, "section" | "h1" | "h2" | "h3" | "p" | "figure" | "svg" | "g" | "tr" | "li") {
                "\n"
            } else {
                ""
            };
        Self(format!("{line}<{name}{attributes}>{content}</{name}>"))
    }
}

impl From<Option<Tag>> for Html {
    fn from(tag: Option<Tag>) -> Self {
        tag.map(Html::from).unwrap_or_default()
    }
}

fn escape_into(target: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => target.push_str("&amp;"),
            '<' => target.push_str("&lt;"),
            '>' => target.push_str("&gt;"),
            '"' => target.push_str("&quot;"),
            '\'' => target.push_str("&#39;"),
            '\n' | '\t' => target.push(character),
            // Not allowed in HTML, and signs that turn the direction of writing around would show another text.
            _ if character.is_control()
                || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                target.push('\u{fffd}');
            }
            _ => target.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let html = Html::from(
            Tag::new("td").attribute("title", "a \"b\" 'c' & <d>").text("</td><script>alert('ü')</script>"),
        );
        assert_eq!(
            html.as_str(),
            "<td title=\"a &quot;b&quot; &#39;c&#39; &amp; &lt;d&gt;\">&lt;/td&gt;&lt;script&gt;alert(&#39;ü&#39;)&lt;/script&gt;</td>"
        );
    }

    #[test]
    fn signs_that_html_forbids_are_replaced() {
        assert_eq!(
            Html::from(Tag::new("b").text("a\0b\u{202e}c\n")).as_str(),
            "<b>a\u{fffd}b\u{fffd}c\n</b>"
        );
    }

    #[test]
    fn tags_nest() {
        let list = Tag::new("ul").with_all(["a", "b"].map(|item| Tag::new("b").text(item)));
        assert_eq!(Html::from(list).as_str(), "<ul><b>a</b><b>b</b></ul>");
        assert_eq!(Html::from(Tag::new("hr").class("x")).as_str(), "<hr class=\"x\">");
    }
}

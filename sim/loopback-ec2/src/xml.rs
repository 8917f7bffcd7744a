//! Writes EC2's responses as XML: elements, lists of `item`, and escaped text.

use std::fmt::Write;

use crate::fault::Ec2Fault;

/// The namespace of the API version.
const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The content of a response.
#[derive(Debug, Default)]
pub(crate) struct Xml(String);

impl Xml {
    /// A response with this inside.
    pub(crate) fn of(inside: impl FnOnce(&mut Xml)) -> Xml {
        let mut xml = Xml::default();
        inside(&mut xml);
        xml
    }

    /// `<tag>text</tag>`
    pub(crate) fn leaf(&mut self, tag: &str, text: impl std::fmt::Display) {
        self.open(tag);
        let from = self.0.len();
        // Writing to a String does not fail.
        let _ = write!(self.0, "{text}");
        if self.0.as_bytes()[from..].iter().any(|b| matches!(b, b'&' | b'<' | b'>' | b'"')) {
            let raw = self.0.split_off(from);
            escape(&mut self.0, &raw);
        }
        self.close(tag);
    }

    /// A leaf, if it has a text.
    pub(crate) fn maybe(&mut self, tag: &str, text: Option<impl std::fmt::Display>) {
        if let Some(text) = text {
            self.leaf(tag, text);
        }
    }

    /// `<tag>...</tag>`
    pub(crate) fn element(&mut self, tag: &str, inside: impl FnOnce(&mut Xml)) {
        self.open(tag);
        inside(self);
        self.close(tag);
    }

    /// `<tag><item>...</item>...</tag>`
    pub(crate) fn list<T>(
        &mut self,
        tag: &str,
        members: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Xml, T),
    ) {
        self.open(tag);
        for member in members {
            self.open("item");
            each(self, member);
            self.close("item");
        }
        self.close(tag);
    }

    /// `<tag><item>text</item>...</tag>`
    pub(crate) fn texts<T: std::fmt::Display>(&mut self, tag: &str, members: impl IntoIterator<Item = T>) {
        self.element(tag, |xml| members.into_iter().for_each(|member| xml.leaf("item", member)));
    }

    /// The complete response to an action.
    pub(crate) fn response(self, action: &str, request_id: &str) -> String {
        let Xml(inside) = self;
        format!(
            "{HEAD}<{action}Response xmlns=\"{NAMESPACE}\"><requestId>{request_id}</requestId>{inside}</{action}Response>"
        )
    }

    fn open(&mut self, tag: &str) {
        self.0.push('<');
        self.0.push_str(tag);
        self.0.push('>');
    }

    fn close(&mut self, tag: &str) {
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
    }
}

/// The complete error response.
pub(crate) fn fault(fault: &Ec2Fault, request_id: &str) -> String {
    let xml = Xml::of(|xml| {
        xml.element("Response", |xml| {
            xml.element("Errors", |xml| {
                xml.element("Error", |xml| {
                    xml.leaf("Code", fault.code);
                    xml.leaf("Message", &fault.message);
                });
            });
            xml.leaf("RequestID", request_id);
        })
    });
    format!("{HEAD}{}", xml.0)
}

fn escape(out: &mut String, raw: &str) {
    for c in raw.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Xml;

    #[test]
    fn text_is_escaped_and_structure_is_not() {
        let mut xml = Xml::default();
        xml.list("tagSet", [("a<b", "\"c&d\"")], |xml, (key, value)| {
            xml.leaf("key", key);
            xml.leaf("value", value);
        });
        let inside = "<tagSet><item><key>a&lt;b</key><value>&quot;c&amp;d&quot;</value></item></tagSet>";
        assert_eq!(xml.0, inside);
    }
}

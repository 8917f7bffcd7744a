//! How pages are written: their frame, tiles and tables.
//!
//! Never: a text that is not escaped. What comes in is text, and [`escaped`] where it is written.

use super::PAGES;
use forebay_quantity::is_unseen;
use std::fmt::Write as _;

/// What a page is.
pub(super) struct Page<'a> {
    /// Its name in the navigation.
    pub name: &'a str,
    /// What stands beside its heading.
    pub detail: &'a str,
    /// So often it loads itself again, in seconds.
    pub reload_s: Option<u32>,
}

/// Text as HTML text or attribute value.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Marks that turn the direction of the text around them could hide what stands there.
            c if is_unseen(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A whole document.
pub(super) fn document(page: &Page<'_>, body: &str) -> String {
    let version = escaped(env!("FOREBAY_VERSION"));
    let asset = |name: &str| format!("/assets/{name}?v={}", version.replace(' ', "%20"));
    let reload = page.reload_s.map_or_else(String::new, |seconds| format!(" data-reload=\"{seconds}\""));
    let link = |(name, path): (&str, &str)| {
        let current = if name == page.name { " aria-current=\"page\"" } else { "" };
        format!("<li><a href=\"{path}\"{current}>{name}</a></li>")
    };
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{name} · Forebay</title><link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"{plot_style}\">\
         <link rel=\"stylesheet\" href=\"{style}\"><script defer src=\"{plot}\"></script><script defer src=\"{script}\"></script></head>\
         <body{reload}><header><h1>Forebay <small>{detail}</small></h1><nav aria-label=\"Pages\"><ul>{links}</ul></nav></header>\
         <main>{body}</main></body></html>\n",
        name = escaped(page.name),
        detail = escaped(page.detail),
        plot_style = asset("uplot.css"),
        style = asset("page.css"),
        plot = asset("uplot.js"),
        script = asset("page.js"),
        links = PAGES.map(link).concat(),
    )
}

/// A figure that is seen first: its name, itself, and what there is to say of it.
pub(super) struct Tile {
    /// What it is.
    pub name: &'static str,
    /// With its unit.
    pub value: String,
    /// In small letters below.
    pub detail: String,
}

/// Tiles side by side.
pub(super) fn tiles(out: &mut String, tiles: &[Tile]) {
    out.push_str("<dl>");
    for Tile { name, value, detail } in tiles {
        let (value, detail) = (escaped(value), escaped(detail));
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}<small>{detail}</small></dd></div>");
    }
    out.push_str("</dl>");
}

/// A cell of a table. All of it is escaped where it is written.
#[derive(Default)]
pub(super) struct Cell {
    /// What it says.
    pub text: String,
    /// Its class: `n` for a figure, else what it is in the style.
    pub class: String,
    /// Where it leads.
    pub link: String,
    /// Its value for a plot.
    pub value: String,
    /// Its time for a plot, in seconds of local time.
    pub time: Option<i64>,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A figure, which stands to the right.
    pub fn figure(text: impl Into<String>) -> Cell {
        Cell { class: "n".to_owned(), ..Cell::text(text) }
    }

    /// A word in the colour of what it says.
    pub fn coloured(text: &str) -> Cell {
        Cell { class: text.to_owned(), ..Cell::text(text) }
    }

    fn write(&self, heading: &str, out: &mut String) {
        let _ = write!(out, "<td role=\"cell\" data-h=\"{}\"", escaped(heading));
        let time = self.time.map_or_else(String::new, |time| time.to_string());
        for (name, value) in [("class", &self.class), ("data-v", &self.value), ("data-t", &time)] {
            if !value.is_empty() {
                let _ = write!(out, " {name}=\"{}\"", escaped(value));
            }
        }
        let text = escaped(&self.text);
        let _ = match self.link.as_str() {
            "" => write!(out, ">{text}</td>"),
            link => write!(out, "><a href=\"{}\">{text}</a></td>", escaped(link)),
        };
    }
}

/// A heading of a table.
#[derive(Clone, Default)]
pub(super) struct Heading {
    /// What the column has.
    pub text: String,
    /// How it is drawn: `bar`, `line`, or not.
    pub plot: &'static str,
}

impl From<&str> for Heading {
    fn from(text: &str) -> Heading {
        Heading { text: text.to_owned(), plot: "" }
    }
}

/// A table in a region of its own, which scrolls where it is too wide. On a narrow screen each row is a list of its headings and cells.
#[derive(Default)]
pub(super) struct Table {
    /// What it has.
    pub caption: String,
    /// Behind that in small letters.
    pub detail: String,
    /// Of its columns.
    pub headings: Vec<Heading>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// The last row, with sums.
    pub sums: Option<Vec<Cell>>,
}

impl Table {
    /// A table of rows that are all as wide as its headings.
    pub fn new<const N: usize>(
        caption: impl Into<String>,
        headings: [&str; N],
        rows: impl Iterator<Item = [Cell; N]>,
    ) -> Table {
        Table {
            caption: caption.into(),
            headings: headings.map(Heading::from).to_vec(),
            rows: rows.map(Vec::from).collect(),
            ..Table::default()
        }
    }

    /// Writes it.
    pub fn write(&self, out: &mut String) {
        let caption = escaped(&self.caption);
        let plot = if self.headings.iter().any(|heading| !heading.plot.is_empty()) { " data-plot" } else { "" };
        let _ = write!(out, "<section tabindex=\"0\" aria-label=\"{caption}\"><table role=\"table\"{plot}><caption>");
        out.push_str(&caption);
        if !self.detail.is_empty() {
            let _ = write!(out, " <small>{}</small>", escaped(&self.detail));
        }
        out.push_str("</caption><thead><tr>");
        for (at, Heading { text, plot }) in self.headings.iter().enumerate() {
            let is_figure = self.rows.first().is_some_and(|row| row.get(at).is_some_and(|cell| cell.class == "n"));
            let class = if is_figure { " class=\"n\"" } else { "" };
            let plot = if plot.is_empty() { String::new() } else { format!(" data-plot=\"{plot}\"") };
            let _ = write!(out, "<th scope=\"col\"{class}{plot}>{}</th>", escaped(text));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            self.row(row, out);
        }
        out.push_str("</tbody>");
        if let Some(sums) = &self.sums {
            out.push_str("<tfoot>");
            self.row(sums, out);
            out.push_str("</tfoot>");
        }
        out.push_str("</table></section>");
    }

    fn row(&self, cells: &[Cell], out: &mut String) {
        out.push_str("<tr role=\"row\">");
        for (heading, cell) in self.headings.iter().zip(cells) {
            cell.write(&heading.text, out);
        }
        out.push_str("</tr>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_comes_in_is_text() {
        let bad = "\"><script>alert('x')</script>\u{202e}&";
        let cell = Cell { link: bad.into(), value: bad.into(), class: bad.into(), ..Cell::text(bad) };
        let table = Table {
            caption: bad.into(),
            detail: bad.into(),
            headings: vec![Heading { text: bad.into(), plot: "bar" }],
            sums: Some(vec![Cell::text(bad)]),
            rows: vec![vec![cell]],
        };
        let mut body = String::new();
        table.write(&mut body);
        tiles(&mut body, &[Tile { name: "Spend", value: bad.into(), detail: bad.into() }]);
        let page = document(&Page { name: "Now", detail: bad, reload_s: None }, &body);
        assert!(!page.contains("<script>") && !page.contains("'x'") && !page.contains('\u{202e}'), "{page}");
        assert_eq!(page.matches("alert(&#39;x&#39;)").count(), 14, "{page}");
    }
}

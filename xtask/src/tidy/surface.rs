//! What each library shows: its public types, and the public functions that break a rule of the project.
//!
//! ```text
//! lib.rs -> each `mod x;` -> its file -> ...      parsed, never built; tests are left out
//! ```
//!
//! A type counts when it is written `pub`, whether or not a module hides it: two of one name confuse the reader of the code. A
//! function counts when others can call it: it, or the type that it belongs to, is in public modules or is exported again by a
//! `pub use`. What a macro makes is not seen. Never: two types of one name; `names.rs` finds those.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Expr, ExprLit, FnArg, ImplItem, Item, ItemImpl, ItemMod, Lit, Meta, MetaNameValue};
use syn::{ReturnType, Signature, TraitItem, Type, Visibility};

use super::exports::{Exports, Step};
use super::{File, Finding};

/// One public type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicType {
    /// Its name, without its module.
    pub name: String,
    /// The file, from the root.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
}

/// What one library shows.
#[derive(Debug, Default)]
pub struct Surface {
    /// Its public structs, enums, unions, traits and type aliases.
    pub types: Vec<PublicType>,
    /// What breaks a rule about one place by itself: a bare `bool` or a tuple as a parameter of a public function, a `Result` without a
    /// section `# Errors`, a front page without an example.
    pub findings: Vec<Finding>,
}

/// Reads a library from its first file on. Fails with the file that is missing or that is no Rust.
pub fn read(library: &str, files: &BTreeMap<&str, &File>) -> Result<Surface, Finding> {
    let mut reader = Reader {
        files,
        path: library.to_owned(),
        types: Vec::new(),
        candidates: Vec::new(),
        exports: Exports::default(),
        modules: Vec::new(),
        owner: String::new(),
    };
    reader.file(library)?;
    Ok(reader.surface())
}

/// A finding that counts when others can call the function.
#[derive(Debug)]
struct Candidate {
    finding: Finding,
    /// The function's name, or that of the type or trait that it belongs to.
    owner: String,
    /// The modules that the function is in; nothing for one that belongs to a type, which may be in others.
    modules: Option<Vec<Step>>,
}

struct Reader<'a> {
    files: &'a BTreeMap<&'a str, &'a File>,
    /// The file that is being read.
    path: String,
    /// Public types, each with its modules.
    types: Vec<(PublicType, Vec<Step>)>,
    candidates: Vec<Candidate>,
    exports: Exports,
    /// The modules that are being read.
    modules: Vec<Step>,
    /// The type or trait whose functions are being read, or nothing.
    owner: String,
}

impl Reader<'_> {
    fn surface(self) -> Surface {
        let Self { types, candidates, exports, .. } = self;
        let reached = types.iter().filter(|(ty, modules)| exports.reach(&ty.name, modules));
        let reached: BTreeSet<String> = reached.map(|(ty, _)| ty.name.clone()).collect();
        let counts = |candidate: &Candidate| match &candidate.modules {
            Some(modules) => exports.reach(&candidate.owner, modules),
            None => reached.contains(&candidate.owner),
        };
        let findings = candidates.into_iter().filter(counts).map(|candidate| candidate.finding).collect();
        Surface { types: types.into_iter().map(|(ty, _)| ty).collect(), findings }
    }

    fn file(&mut self, path: &str) -> Result<(), Finding> {
        let missing =
            || Finding { path: path.to_owned(), line: 0, what: "is no file that git knows; add it".to_owned() };
        let text = &self.files.get(path).ok_or_else(missing)?.text;
        let parsed = syn::parse_file(text).map_err(|error| {
            let line = error.span().start().line;
            Finding { path: path.to_owned(), line, what: format!("is not Rust as tidy reads it: {error}") }
        })?;
        let above = std::mem::replace(&mut self.path, path.to_owned());
        let is_root = above == path;
        if is_root && !text.lines().any(|line| line.starts_with("//!") && line.contains("```")) {
            self.found("", 1, "the library's front page has no example; add a fenced block to its `//!`".into());
        }
        // `x.rs` keeps its modules in `x/`; `lib.rs` and `mod.rs` beside themselves.
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.trim_end_matches(".rs");
        let beside = is_root || stem == "mod";
        let folder = if beside { folder.to_owned() } else { format!("{folder}/{stem}") };
        self.items(&parsed.items, &folder)?;
        self.path = above;
        Ok(())
    }

    fn items(&mut self, items: &[Item], folder: &str) -> Result<(), Finding> {
        for item in items {
            match item {
                Item::Mod(module) if !for_tests(&module.attrs) => self.module(module, folder)?,
                Item::Struct(item) => self.named(&item.vis, &item.ident, &item.attrs),
                Item::Enum(item) => self.named(&item.vis, &item.ident, &item.attrs),
                Item::Union(item) => self.named(&item.vis, &item.ident, &item.attrs),
                Item::Type(item) => self.named(&item.vis, &item.ident, &item.attrs),
                Item::Trait(item) => {
                    self.named(&item.vis, &item.ident, &item.attrs);
                    self.owner = item.ident.to_string();
                    for function in &item.items {
                        if let (TraitItem::Fn(function), true) = (function, is_public(&item.vis)) {
                            self.function(&function.sig, &function.attrs);
                        }
                    }
                    self.owner.clear();
                }
                Item::Fn(item) if is_public(&item.vis) => self.function(&item.sig, &item.attrs),
                Item::Impl(item) if item.trait_.is_none() && !for_tests(&item.attrs) => self.methods(item),
                Item::Use(item) if is_public(&item.vis) => self.exports.read(&item.tree, ""),
                _ => {}
            }
        }
        Ok(())
    }

    fn module(&mut self, module: &ItemMod, folder: &str) -> Result<(), Finding> {
        let within = format!("{folder}/{}", module.ident);
        self.modules.push((module.ident.to_string(), is_public(&module.vis)));
        if let Some((_, items)) = &module.content {
            self.items(items, &within)?;
        } else {
            let beside = format!("{within}.rs");
            let path = if self.files.contains_key(beside.as_str()) { beside } else { format!("{within}/mod.rs") };
            self.file(&path)?;
        }
        self.modules.pop();
        Ok(())
    }

    /// The public functions of a type.
    fn methods(&mut self, item: &ItemImpl) {
        let Type::Path(ty) = bare(&item.self_ty) else {
            return;
        };
        self.owner = ty.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        for function in &item.items {
            if let ImplItem::Fn(function) = function
                && is_public(&function.vis)
            {
                self.function(&function.sig, &function.attrs);
            }
        }
        self.owner.clear();
    }

    fn named(&mut self, visibility: &Visibility, name: &syn::Ident, attributes: &[Attribute]) {
        if is_public(visibility) && !for_tests(attributes) {
            let line = name.span().start().line;
            let ty = PublicType { name: name.to_string(), path: self.path.clone(), line };
            self.types.push((ty, self.modules.clone()));
        }
    }

    fn function(&mut self, signature: &Signature, attributes: &[Attribute]) {
        if for_tests(attributes) {
            return;
        }
        let (name, line) = (signature.ident.to_string(), signature.ident.span().start().line);
        for argument in &signature.inputs {
            let FnArg::Typed(argument) = argument else {
                continue;
            };
            let line = argument.colon_token.span.start().line;
            match bare(&argument.ty) {
                Type::Path(ty) if ty.path.is_ident("bool") => {
                    let what = format!("`{name}` takes a bare `bool`; take an enum whose variants say what is meant");
                    self.found(&name, line, what);
                }
                Type::Tuple(ty) if !ty.elems.is_empty() => {
                    let what = format!("`{name}` takes a tuple; take a struct with named fields, or several arguments");
                    self.found(&name, line, what);
                }
                _ => {}
            }
        }
        if returns_result(signature) && !has_errors_section(attributes) {
            let what = format!("`{name}` returns a `Result` without a section `# Errors`; say when it fails");
            self.found(&name, line, what);
        }
    }

    fn found(&mut self, name: &str, line: usize, what: String) {
        let finding = Finding { path: self.path.clone(), line, what };
        let (owner, modules) = match self.owner.as_str() {
            "" => (name, Some(self.modules.clone())),
            owner => (owner, None),
        };
        self.candidates.push(Candidate { finding, owner: owner.to_owned(), modules });
    }
}

/// The type behind references and parentheses.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Reference(reference) => bare(&reference.elem),
        Type::Paren(paren) => bare(&paren.elem),
        Type::Group(group) => bare(&group.elem),
        ty => ty,
    }
}

fn returns_result(signature: &Signature) -> bool {
    let ReturnType::Type(_, ty) = &signature.output else {
        return false;
    };
    matches!(bare(ty), Type::Path(ty) if ty.path.segments.last().is_some_and(|segment| segment.ident == "Result"))
}

fn has_errors_section(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).any(|attribute| {
        matches!(
            &attribute.meta,
            Meta::NameValue(MetaNameValue { value: Expr::Lit(ExprLit { lit: Lit::Str(text), .. }), .. })
                if text.value().lines().any(|line| line.trim() == "# Errors")
        )
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether it is there for tests only: `#[cfg(test)]`, alone or among others, but not `not(test)`.
fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter_map(|attribute| attribute.meta.require_list().ok()).any(|list| {
        let when = list.tokens.to_string().replace(' ', "");
        let mut words = when.split(|c: char| !c.is_alphanumeric() && c != '_');
        list.path.is_ident("cfg") && words.any(|word| word == "test") && !when.contains("not(test")
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn surface(files: &[File]) -> Surface {
        let files: BTreeMap<&str, &File> = files.iter().map(|file| (file.path.as_str(), file)).collect();
        read("a/src/lib.rs", &files).unwrap_or_else(|finding| panic!("{finding}"))
    }

    const EXAMPLE: &str = "front page has no example";
    const BOOL: &str = "takes a bare `bool`";
    const TUPLE: &str = "takes a tuple";
    const ERRORS: &str = "without a section `# Errors`";

    /// The rule that each finding is about, by the words that only it has, and its place.
    fn places(surface: &Surface) -> Vec<(&str, &str, usize)> {
        let rule = |what: &str| [EXAMPLE, BOOL, TUPLE, ERRORS].into_iter().find(|words| what.contains(words)).unwrap();
        surface.findings.iter().map(|found| (rule(&found.what), found.path.as_str(), found.line)).collect()
    }

    #[test]
    fn public_types_are_found_in_every_module_but_those_of_tests() {
        let library = "//! A library.\n//! ```\n//! ```\nmod near;\npub mod far;\n#[cfg(test)]\nmod tests;\n\
                       pub struct One;\nstruct Hidden;\npub(crate) enum Within {}\npub type Two = One;\n\
                       #[cfg(not(test))]\npub enum Three {}\n#[cfg(test)]\npub enum Never {}\n\
                       mod inline { pub trait Four {} mod deep; }\n";
        let files = [
            file("a/src/lib.rs", library),
            file("a/src/near.rs", "//! x\nmod under;\npub enum Five {}\n"),
            file("a/src/near/under.rs", "//! x\npub union Six { a: u8 }\n"),
            file("a/src/far/mod.rs", "//! x\nmod beside;\n"),
            file("a/src/far/beside.rs", "//! x\npub struct Seven;\n"),
            file("a/src/inline/deep.rs", "//! x\n\npub struct Eight;\n"),
        ];
        let surface = surface(&files);
        let names: Vec<&str> = surface.types.iter().map(|ty| ty.name.as_str()).collect();
        assert_eq!(names, ["Six", "Five", "Seven", "One", "Two", "Three", "Four", "Eight"]);
        assert_eq!((surface.types[7].path.as_str(), surface.types[7].line), ("a/src/inline/deep.rs", 3));
        assert_eq!(surface.findings, []);
    }

    #[test]
    fn signatures_are_checked_where_they_are_public() {
        let library = "//! A library.\n\
                       pub fn one(on: bool, pair: (u8, u8)) {}\n\
                       pub fn two(on: &bool, many: &[(u8, u8)], none: ()) -> bool { true }\n\
                       fn three(on: bool) -> Result<(), ()> { Ok(()) }\n\
                       pub fn four() -> io::Result<()> { Ok(()) }\n\
                       /// Five.\n///\n/// # Errors\n/// Never.\npub fn five() -> Result<(), ()> { Ok(()) }\n\
                       pub struct S;\n\
                       impl S { pub fn six(&self, on: bool) {} fn seven(on: bool) {} }\n\
                       impl T for S { fn eight(&self, on: bool) {} }\n\
                       pub trait T { fn eight(&self, on: bool); }\n\
                       trait U { fn nine(&self, on: bool); }\n";
        let surface = surface(&[file("a/src/lib.rs", library)]);
        let expected = [
            (EXAMPLE, "a/src/lib.rs", 1),
            (BOOL, "a/src/lib.rs", 2),
            (TUPLE, "a/src/lib.rs", 2),
            (BOOL, "a/src/lib.rs", 3),
            (ERRORS, "a/src/lib.rs", 5),
            (BOOL, "a/src/lib.rs", 12),
            (BOOL, "a/src/lib.rs", 14),
        ];
        assert_eq!(places(&surface), expected);
        assert!(surface.findings[1].what.contains("`one` takes a bare `bool`"));
    }

    #[test]
    fn a_function_counts_when_others_can_call_it() {
        let library = "//! A library.\n//! ```\n//! ```\nmod hidden;\npub mod shown;\nmod all;\n\
                       pub use hidden::{One, f as g};\npub use all::*;\npub(crate) use hidden::h;\n";
        let one = "pub fn f(on: bool) {}\npub fn h(on: bool) {}\npub struct One;\npub struct Two;\n\
                   impl One { pub fn a(on: bool) {} }\nimpl Two { pub fn b(on: bool) {} }\nmod deep;\n";
        let files = [
            file("a/src/lib.rs", library),
            file("a/src/hidden.rs", one),
            file("a/src/hidden/deep.rs", "impl super::One {\npub fn c(on: bool) {}\n}\npub fn d(on: bool) {}\n"),
            file("a/src/shown.rs", "pub fn e(on: bool) {}\nmod under { pub fn no(on: bool) {} }\n"),
            file("a/src/all.rs", "pub fn i(on: bool) {}\n"),
        ];
        let expected = [
            (BOOL, "a/src/hidden.rs", 1),
            (BOOL, "a/src/hidden.rs", 5),
            (BOOL, "a/src/hidden/deep.rs", 2),
            (BOOL, "a/src/shown.rs", 1),
            (BOOL, "a/src/all.rs", 1),
        ];
        assert_eq!(places(&surface(&files)), expected);
    }

    #[test]
    fn a_file_that_is_missing_or_no_rust_is_a_finding() {
        let read_one = |text: &str| {
            let library = file("a/src/lib.rs", text);
            let files = BTreeMap::from([("a/src/lib.rs", &library)]);
            read("a/src/lib.rs", &files).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(read_one("//! x\nmod gone;\n"), "a/src/gone/mod.rs: is no file that git knows; add it");
        assert!(read_one("//! x\nfn f( {}\n").starts_with("a/src/lib.rs:2: is not Rust as tidy reads it"));
    }
}

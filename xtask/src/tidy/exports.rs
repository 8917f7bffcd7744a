//! Which items of a library others can name: those in public modules, and those that a `pub use` exports again.
//!
//! Approximate: a `pub use` is kept by the last name of its path, which then stands for every item that has it.
//! Never: the items themselves; `surface.rs` has them.

use std::collections::BTreeSet;

use syn::UseTree;

/// A module on the way from the library's root: its name, and whether it is public.
pub type Step = (String, bool);

/// What `pub use` exports again, by the last name of its path. Approximate: a name stands for every item that has it.
#[derive(Debug, Default)]
pub struct Exports {
    items: BTreeSet<String>,
    /// Modules whose items are exported all at once (`pub use module::*`).
    modules: BTreeSet<String>,
}

impl Exports {
    /// Adds what one `pub use` exports. `within` is the module before the tree, or nothing.
    pub fn read(&mut self, tree: &UseTree, within: &str) {
        match tree {
            UseTree::Path(path) => self.read(&path.tree, &path.ident.to_string()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.read(tree, within)),
            UseTree::Name(name) => drop(self.items.insert(name.ident.to_string())),
            UseTree::Rename(name) => drop(self.items.insert(name.ident.to_string())),
            UseTree::Glob(_) => drop(self.modules.insert(within.to_owned())),
        }
    }

    /// Whether others can name the item of this name in these modules.
    pub fn reach(&self, name: &str, modules: &[Step]) -> bool {
        self.items.contains(name)
            || modules
                .iter()
                .all(|(module, public)| *public || self.modules.contains(module) || self.items.contains(module))
    }
}

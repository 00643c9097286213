//! The contract, and the world for a module.

use wit_parser::{PackageId, Resolve, WorldId};

use crate::component::ComponentizeError;

/// The version of the contract that components are built for.
pub const CONTRACT_VERSION: &str = "0.1.0";

const PACKAGE: &str = "tollgate:admission";

const SOURCES: [(&str, &str); 6] = [
    ("access.wit", include_str!("../../../wit/access.wit")),
    ("cluster.wit", include_str!("../../../wit/cluster.wit")),
    ("images.wit", include_str!("../../../wit/images.wit")),
    ("types.wit", include_str!("../../../wit/types.wit")),
    ("review.wit", include_str!("../../../wit/review.wit")),
    ("world.wit", include_str!("../../../wit/world.wit")),
];

/// The interfaces of the contract that a module imports and exports, by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Used {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
}

/// Parses the contract's interfaces.
pub(crate) fn resolve() -> Resolve {
    let mut resolve = Resolve::default();
    let mut sources = wit_parser::SourceMap::new();
    for (name, text) in SOURCES {
        sources.push(name.as_ref(), text);
    }
    let group = sources.parse().expect("the contract is valid WIT");
    resolve.push_group(group).expect("the contract is complete");
    resolve
}

/// Builds a world with exactly the used interfaces. With more, the module could not become a component.
pub(crate) fn world(resolve: &mut Resolve, name: &str, used: &Used) -> WorldId {
    let lines = |word: &str, names: &[String]| -> String {
        let line = |name: &String| format!("    {word} {PACKAGE}/{name}@{CONTRACT_VERSION};\n");
        names.iter().map(line).collect()
    };
    let text = format!(
        "package tollgate:{name};\n\nworld {name} {{\n{}{}}}\n",
        lines("import", &used.imports),
        lines("export", &used.exports)
    );
    let package: PackageId = resolve
        .push_str(format!("{name}.wit"), &text)
        .expect("the contract's interfaces form a valid world");
    resolve.packages[package].worlds[name]
}

// === impl Used ===

impl Used {
    /// Records the module name of an import.
    pub(crate) fn import(&mut self, module: &str) -> Result<(), ComponentizeError> {
        match interface(module)? {
            Some(name) => add(&mut self.imports, name),
            None => return Err(ComponentizeError::UnknownImport(module.to_owned())),
        }
        Ok(())
    }

    /// Records the name of an export. For a function of the contract, this is `interface#function`.
    pub(crate) fn export(&mut self, name: &str) -> Result<(), ComponentizeError> {
        if let Some((interface_name, _)) = name.split_once('#')
            && let Some(name) = interface(interface_name)?
        {
            add(&mut self.exports, name);
        }
        Ok(())
    }
}

/// Returns the name of an interface of the contract. None for anything else.
fn interface(full: &str) -> Result<Option<&str>, ComponentizeError> {
    let Some((name, version)) = full
        .strip_prefix(PACKAGE)
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.split_once('@'))
    else {
        return Ok(None);
    };
    if version == CONTRACT_VERSION {
        Ok(Some(name))
    } else {
        Err(ComponentizeError::OtherVersion(version.to_owned()))
    }
}

fn add(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

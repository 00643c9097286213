//! The configuration: any text is either read or rejected, and each rejected part is reported with its place.

use std::path::Path;

use tollgate_config::{Config, ConfigError};

/// Reads the bytes as a configuration file.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let folder = Path::new("/nowhere");
    match Config::parse(text, folder) {
        Ok(config) => {
            let again = Config::parse(text, folder).expect("it was accepted");
            assert!(
                config.needs_restart(&again).is_empty(),
                "the same text is not the same configuration"
            );
        }
        Err(ConfigError::Invalid { problems, .. }) => {
            assert!(problems.iter().count() > 0, "refused without a reason");
            for problem in problems.iter() {
                assert!(!problem.message.is_empty(), "{problem}");
                assert!(
                    !problem.place.contains('\n') && !problem.message.contains('\n'),
                    "a problem is one line: {problem:?}"
                );
            }
            // There is one line per problem, whatever keys and values the file has.
            let lines = problems.to_string().lines().count();
            assert!(lines <= 202, "{lines} lines");
        }
        Err(ConfigError::Read { path, .. }) => panic!("{} has been read", path.display()),
    }
}

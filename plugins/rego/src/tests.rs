mod library;
mod oracle;
mod policy;
mod sprintf;
mod suites;
mod syntax;

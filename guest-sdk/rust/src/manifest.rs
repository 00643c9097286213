//! Builders for the manifest and its rules. The export macros turn `key: value` into these calls.

use crate::{Manifest, Operation, Rule};

// === impl Manifest ===

impl Manifest {
    /// Creates a manifest with only a name and a version.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            description: String::new(),
            settings_schema: None,
            rules: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Overrides the package's name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Overrides the package's version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the description, one sentence for people. The default is the package's description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the JSON Schema of the settings, as text.
    #[must_use]
    pub fn settings_schema(mut self, schema: impl Into<String>) -> Self {
        self.settings_schema = Some(schema.into());
        self
    }

    /// Sets the requests that the plugin is meant for.
    #[must_use]
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = rules.into_iter().collect();
        self
    }

    /// Adds labels, by well-known or reverse-DNS key.
    #[must_use]
    pub fn labels<K: Into<String>, V: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.labels = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        self
    }
}

// === impl Rule ===

impl Rule {
    /// Creates a rule for operations on the resources of one group and version. `*` is a wildcard for group, version
    /// and resource.
    ///
    /// ```
    /// use tollgate_sdk::{Operation, Rule};
    ///
    /// let rule = Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"]);
    /// assert_eq!(rule.operations, ["CREATE", "UPDATE"]);
    /// assert_eq!(rule.api_groups, [""]);
    /// ```
    #[must_use]
    pub fn on<R: Into<String>>(
        operations: impl IntoIterator<Item = Operation>,
        group: impl Into<String>,
        version: impl Into<String>,
        resources: impl IntoIterator<Item = R>,
    ) -> Self {
        Self {
            operations: operations
                .into_iter()
                .map(|operation| operation.as_str().to_owned())
                .collect(),
            api_groups: vec![group.into()],
            api_versions: vec![version.into()],
            resources: resources.into_iter().map(Into::into).collect(),
            scope: None,
        }
    }

    /// Restricts the rule to `Namespaced` or to `Cluster` objects.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }
}

// === impl Operation ===

impl Operation {
    /// The operation as Kubernetes writes it: CREATE, UPDATE, DELETE or CONNECT.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

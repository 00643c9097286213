//! Security contexts of Pods and containers.

use serde::Deserialize;

/// The fields of a security context that checks need. A context is small, so it is read as a whole. Pods and containers
/// share most fields, and no check reads a field that its kind does not have.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecurityContext {
    pub(crate) allow_privilege_escalation: Option<bool>,
    pub(crate) app_armor_profile: Option<Profile>,
    pub(crate) capabilities: Option<Capabilities>,
    pub(crate) privileged: Option<bool>,
    pub(crate) proc_mount: Option<String>,
    pub(crate) run_as_non_root: Option<bool>,
    pub(crate) run_as_user: Option<i64>,
    pub(crate) se_linux_options: Option<SeLinuxOptions>,
    pub(crate) seccomp_profile: Option<Profile>,
    pub(crate) sysctls: Option<Vec<Sysctl>>,
    pub(crate) windows_options: Option<WindowsOptions>,
}

/// A profile of AppArmor or seccomp.
#[derive(Deserialize)]
pub(crate) struct Profile {
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Capabilities {
    add: Option<Vec<String>>,
    drop: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct SeLinuxOptions {
    role: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Sysctl {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WindowsOptions {
    host_process: Option<bool>,
}

// === impl SecurityContext ===

impl SecurityContext {
    pub(crate) fn added_capabilities(&self) -> &[String] {
        let capabilities = self.capabilities.as_ref();
        capabilities
            .and_then(|capabilities| capabilities.add.as_deref())
            .unwrap_or_default()
    }

    pub(crate) fn drops_capability(&self, name: &str) -> bool {
        let capabilities = self.capabilities.as_ref();
        capabilities
            .and_then(|capabilities| capabilities.drop.as_ref())
            .is_some_and(|dropped| dropped.iter().any(|known| known == name))
    }

    pub(crate) fn sysctls(&self) -> &[Sysctl] {
        self.sysctls.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_host_process(&self) -> bool {
        let options = self.windows_options.as_ref();
        options.is_some_and(|options| options.host_process == Some(true))
    }
}

// === impl Profile ===

impl Profile {
    /// Returns the type. A missing one is empty, as in Kubernetes. No valid type is empty.
    pub(crate) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }
}

// === impl SeLinuxOptions ===

impl SeLinuxOptions {
    pub(crate) fn role(&self) -> &str {
        self.role.as_deref().unwrap_or_default()
    }

    pub(crate) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    pub(crate) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }
}

// === impl Sysctl ===

impl Sysctl {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

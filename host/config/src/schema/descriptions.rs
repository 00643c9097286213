//! The descriptions of the keys of a configuration, as editors show them.

/// The end of a key path, and the description of the keys whose paths end so. The longest end counts.
pub type Description = (&'static str, &'static str);

/// The keys of the configuration file.
pub const CONFIG_DESCRIPTIONS: &[Description] = &[
    (
        "listen",
        "IP address and port for kube-apiserver, over TLS. Default: 0.0.0.0:8443.",
    ),
    (
        "probes",
        "The listener for kubelet and Prometheus, without TLS.",
    ),
    (
        "probes.listen",
        "IP address and port of /livez, /readyz and /metrics. Default: 0.0.0.0:8080.",
    ),
    (
        "admin",
        "The listener for administrators: /plugins, /shadows, /rollouts, /decisions and /reload.",
    ),
    (
        "admin.listen",
        "IP address and port of the admin listener. Default: 127.0.0.1:8081.",
    ),
    (
        "admin.hosts",
        "Names and IP addresses that the Host of a request may have, besides those of the loopback interface.",
    ),
    (
        "admin.authentication",
        "Credentials that an administrator must present. Required when admin.listen is not a loopback address.",
    ),
    (
        "admin.authentication.tokenReview",
        "Accepts tokens of the cluster, which kube-apiserver verifies. Needs cluster.enabled.",
    ),
    (
        "admin.authentication.tokenReview.audiences",
        "Audiences, one of which a token must have. Default: those of kube-apiserver.",
    ),
    (
        "decisions",
        "How many decisions Tollgate keeps for /decisions and `tollgate explain`.",
    ),
    (
        "decisions.maxCount",
        "Maximum number of decisions. With 0, Tollgate keeps none.",
    ),
    (
        "decisions.maxBytes",
        "Maximum size of the decisions in memory.",
    ),
    (
        "tls",
        "Source of the server's certificate: the files certificate and key, or selfSigned. Default: selfSigned.",
    ),
    (
        "tls.certificate",
        "PEM file with the certificate, followed by the chain up to its CA.",
    ),
    (
        "tls.key",
        "PEM file with the private key of the certificate.",
    ),
    (
        "selfSigned",
        "A CA and a certificate that the server creates itself.",
    ),
    (
        "selfSigned.directory",
        "Folder for the CA's certificate and key. Default: ./tollgate-tls.",
    ),
    (
        "selfSigned.names",
        "DNS names and IP addresses of the certificate, besides localhost, 127.0.0.1 and ::1.",
    ),
    (
        "selfSigned.service",
        "The Kubernetes Service in front of the server, as name.namespace.",
    ),
    (
        "authentication",
        "Credentials that a client must present. Without this key, every client is accepted.",
    ),
    (
        "clientCertificate",
        "Accepts clients with a certificate of this CA.",
    ),
    (
        "clientCertificate.ca",
        "PEM file of the CAs that may have issued a client's certificate.",
    ),
    (
        "clientCertificate.subjects",
        "Accepted common names, DNS names or URIs, compared exactly. Default: every certificate of the CAs.",
    ),
    ("bearer", "Accepts clients with one of these tokens."),
    ("bearer.file", "File of bearer tokens, one on each line."),
    (
        "basic",
        "Accepts clients with one of these names and passwords.",
    ),
    (
        "basic.file",
        "File of names and bcrypt hashes, one on each line, as `htpasswd -nB NAME` writes it.",
    ),
    ("requests", "Sizes and times of requests."),
    (
        "requests.maxBody",
        "Maximum size of the body of one request.",
    ),
    (
        "requests.maxInFlight",
        "Maximum size of all bodies together that are being read or answered. At least maxBody.",
    ),
    (
        "requests.maxDecoded",
        "Maximum memory of all decoded documents together.",
    ),
    (
        "requests.maxConnections",
        "Maximum number of connections at the same time.",
    ),
    (
        "requests.deadlineMargin",
        "Time subtracted from kube-apiserver's timeout for the way back. The larger of the two values counts.",
    ),
    (
        "deadlineMargin.percent",
        "Share of the timeout, in percent.",
    ),
    ("deadlineMargin.atLeast", "Minimum of the margin."),
    (
        "requests.defaultTimeout",
        "Timeout of a request without ?timeout=.",
    ),
    ("requests.idleTimeout", "How long a connection may be idle."),
    (
        "requests.shutdownGracePeriod",
        "How long requests in flight may take after SIGTERM.",
    ),
    ("requests.maxDepth", "How deep JSON may be nested."),
    ("engine", "Resources of all plugins together."),
    (
        "engine.maxConcurrentCalls",
        "Maximum number of calls of plugins at the same time.",
    ),
    (
        "engine.maxMemory",
        "Maximum size of the linear memories of all calls together.",
    ),
    (
        "engine.answerCache",
        "Memory for answers that later calls get if they would ask the same and be told the same. With 0, every call runs.",
    ),
    (
        "engine.keptInstances",
        "Maximum number of instances that are kept after a call and reset for the next call of their plugin. With 0, every call gets a new instance.",
    ),
    (
        "engine.maxWasmStack",
        "Size of the WebAssembly stack of one call.",
    ),
    ("engine.maxPlugin", "Maximum size of a plugin's file."),
    (
        "engine.loadTimeout",
        "CPU time of each of the two processes that prepare a plugin.",
    ),
    (
        "engine.loadMemory",
        "Memory of each of the two processes that prepare a plugin.",
    ),
    (
        "engine.cacheDirectory",
        "Folder for compiled plugins, which makes the next start faster. Default: none.",
    ),
    ("registries", "Access to registries."),
    ("registries.pollInterval", "How often Tollgate polls a tag."),
    (
        "registries.timeout",
        "Timeout of one pull, retries included.",
    ),
    (
        "registries.cacheDirectory",
        "Folder for pulled artifacts and for the last known good. Default: none.",
    ),
    (
        "registries.maxCache",
        "Maximum size of cacheDirectory. The least recently used artifacts are evicted first.",
    ),
    (
        "registries.credentials",
        "A config file of docker or podman. Default: where docker and podman look for theirs.",
    ),
    ("registries.hosts", "Settings for individual registries."),
    (
        "hosts[].host",
        "Host and, if it has one, port, as references write them.",
    ),
    (
        "hosts[].ca",
        "PEM file of the CAs that Tollgate trusts for this registry, instead of the system's.",
    ),
    (
        "hosts[].plainHTTP",
        "Whether Tollgate uses this registry without TLS. Default: false.",
    ),
    (
        "startupGrace",
        "How long a replica stays unready at a start while required plugins are missing. Default: never, or 5m with startupPeers.",
    ),
    (
        "startupPeers",
        "The probes.listen of the other replicas, as host:port.",
    ),
    (
        "record",
        "Records reviews in a folder, for `tollgate replay`. Default: none.",
    ),
    (
        "record.directory",
        "Folder of the recording. Each replica needs its own.",
    ),
    (
        "record.maxBytes",
        "Maximum size of the recording. The oldest segments are deleted first.",
    ),
    (
        "record.maxQueue",
        "Maximum size of the reviews that wait to be written.",
    ),
    (
        "record.share",
        "Share of the reviews that is recorded, in percent.",
    ),
    (
        "record.redact",
        "Confidential places in objects, besides the content of Secrets: JSON Pointers, in which * stands for every member or element.",
    ),
    (
        "record.rules",
        "The reviews that are recorded. Default: all.",
    ),
    (
        "record.namespaces",
        "Namespaces whose reviews are recorded. Default: all.",
    ),
    (
        "record.excludeNamespaces",
        "Namespaces whose reviews are not recorded.",
    ),
    (
        "telemetry",
        "Exports to collectors, by OTLP over HTTP with protobuf.",
    ),
    (
        "telemetry.traces",
        "Exports a span for each traced review and each call of a plugin. Default: none.",
    ),
    (
        "telemetry.decisions",
        "Exports decisions as log records, with the object that each is about. Default: none.",
    ),
    (
        "endpoint",
        "URL of the collector. Without a path, Tollgate adds /v1/traces or /v1/logs.",
    ),
    (
        "headers",
        "Headers of each request to the collector, such as its credentials.",
    ),
    ("headers[].name", "Name of the header."),
    (
        "headers[].file",
        "File with the value of the header. Tollgate reads it again for each request.",
    ),
    (
        "traces.ca",
        "PEM file of the CAs that Tollgate trusts for the collector. Default: those of the system.",
    ),
    (
        "decisions.ca",
        "PEM file of the CAs that Tollgate trusts for the collector. Default: those of the system.",
    ),
    (
        "traces.timeout",
        "Time limit of one request to the collector.",
    ),
    (
        "decisions.timeout",
        "Time limit of one request to the collector.",
    ),
    (
        "traces.maxQueue",
        "Maximum size of the spans that wait to be exported.",
    ),
    (
        "decisions.maxQueue",
        "Maximum size of the decisions that wait to be exported.",
    ),
    (
        "traces.share",
        "Share of the reviews that is traced if no authenticated caller decides, in percent.",
    ),
    (
        "decisions.allowedShare",
        "Share of the decisions to allow that is exported, in percent. All denials and errors are exported.",
    ),
    (
        "cluster",
        "How the server uses the cluster that it runs in.",
    ),
    (
        "cluster.enabled",
        "Whether custom resources are a source of plugins. Default: false.",
    ),
    (
        "cluster.installation",
        "Name of the installation, the same for all replicas. Default: tollgate.",
    ),
    (
        "cluster.namespace",
        "Namespace of the installation. Default: that of the pod's service account.",
    ),
    (
        "cluster.replica",
        "Name of this replica. Default: POD_NAME, and then the host's name.",
    ),
    (
        "cluster.registration",
        "How the installation registers its webhooks.",
    ),
    (
        "registration.enabled",
        "Whether the installation registers its own webhooks. Default: true.",
    ),
    (
        "registration.service",
        "The Service in front of the replicas, as name or name:port. Default: the name of the installation, and port 443.",
    ),
    (
        "registration.anchor",
        "Name of an empty ClusterRole that owns the webhook configurations. Default: the Namespace owns them.",
    ),
    (
        "registration.perPlugin",
        "Whether each plugin gets its own webhook, even if one for all would do. Default: false.",
    ),
    (
        "registration.canaryInterval",
        "How often the leader shows that kube-apiserver calls each webhook. Default: 1m.",
    ),
    (
        "scan",
        "The background scan, which judges the objects that exist and writes policy reports.",
    ),
    (
        "scan.enabled",
        "Whether the replicas scan the cluster. Default: false.",
    ),
    (
        "scan.interval",
        "Time from the begin of a scan to the begin of the next one.",
    ),
    ("scan.format", "The API of the policy reports."),
    (
        "scan.name",
        "The name of the policy reports. Default: tollgate.",
    ),
    (
        "scan.resources",
        "The resources that are scanned, if a plugin matches them. Default: all.",
    ),
    (
        "resources[].apiGroups",
        "API groups. The core group is the empty text, and * stands for all.",
    ),
    (
        "resources[].resources",
        "Resources without subresources, such as pods. * stands for all.",
    ),
    ("scan.pageSize", "Maximum number of objects in a page."),
    ("scan.maxPage", "Maximum size of a page."),
    (
        "scan.maxRate",
        "Maximum number of objects per second that a replica reads or judges.",
    ),
    (
        "scan.maxMemory",
        "Maximum size of the results that a replica keeps.",
    ),
    (
        "scan.maxReport",
        "Maximum size of the policy reports of a namespace.",
    ),
    (
        "tenancy",
        "What plugins of namespaces (AdmissionPlugin) may do. Without it, namespaces have none. Needs cluster.enabled.",
    ),
    (
        "tenancy.registries",
        "Registries that artifacts may come from, each perhaps with the beginning of a repository in whole parts.",
    ),
    (
        "tenancy.signatures",
        "Keys that every artifact must be signed with. Default: the file's signatures.",
    ),
    (
        "tenancy.capabilities",
        "Capabilities that a plugin may have. Default: none.",
    ),
    (
        "tenancy.modes",
        "Modes that a plugin may have. The first one is the default of a plugin. Default: all.",
    ),
    (
        "tenancy.failurePolicies",
        "Failure policies that a plugin may have. The first one is the default of a plugin. Default: Fail and Ignore.",
    ),
    (
        "tenancy.settingsFrom",
        "Kinds of objects in the plugin's namespace that settings may come from: ConfigMap, Secret. Default: none.",
    ),
    (
        "tenancy.limits",
        "The largest limits that a plugin may have, which are also its default. Default: the file's limits.",
    ),
    (
        "tenancy.maxPlugins",
        "Maximum number of plugins of all namespaces. The oldest ones count.",
    ),
    (
        "tenancy.maxPluginsPerNamespace",
        "Maximum number of plugins of one namespace. The oldest ones count.",
    ),
    (
        "tenancy.budget",
        "How much of the host the plugins of namespaces may use together.",
    ),
    (
        "budget.calls",
        "Maximum number of concurrent calls of all plugins of namespaces. A namespace gets at most half of them.",
    ),
    (
        "budget.fuel",
        "Fuel per second of the plugins of all namespaces together.",
    ),
    (
        "budget.fuelPerNamespace",
        "Fuel per second of the plugins of one namespace.",
    ),
    (
        "budget.cpuTime",
        "CPU time per second of the plugins of all namespaces together.",
    ),
    (
        "budget.cpuTimePerNamespace",
        "CPU time per second of the plugins of one namespace.",
    ),
    ("log", "What log records contain."),
    (
        "log.identities",
        "Whether log records name objects and users. Default: true.",
    ),
    (
        "allowEmpty",
        "Whether the file may have no plugins, so that everything passes. Default: false.",
    ),
    (
        "limits",
        "Limits of one plugin. A plugin takes the keys that it does not set from the file's limits.",
    ),
    (
        "limits.fuel",
        "Units of work of one call: about one per WebAssembly instruction, and the charges of host functions.",
    ),
    (
        "limits.cpuTime",
        "Time that one call runs, without waiting for a processor.",
    ),
    (
        "limits.timeout",
        "Time from the start of a call to its answer.",
    ),
    (
        "limits.memory",
        "Size of all linear memories of one call together.",
    ),
    ("limits.memories", "Number of linear memories."),
    ("limits.tables", "Number of tables."),
    ("limits.tableElements", "Number of elements of one table."),
    (
        "limits.instances",
        "Number of core instances that one call may create.",
    ),
    (
        "limits.output",
        "Bytes that one call may pass to the host: the arguments of host functions and the answer.",
    ),
    (
        "limits.patchOperations",
        "Number of operations of one patch.",
    ),
    ("limits.warnings", "Number of warnings of one answer."),
    (
        "limits.annotations",
        "Number of audit annotations of one answer.",
    ),
    ("limits.logLines", "Number of log lines of one call."),
    (
        "limits.concurrency",
        "Number of calls of this plugin at the same time.",
    ),
    (
        "conflicts",
        "The effect of a mutator changing a value that an earlier mutator wrote. last: the later value wins. deny: a fault. Default: last.",
    ),
    (
        "signatures",
        "What must be proven about artifacts of registries: keys, or policies by repository.",
    ),
    (
        "signatures.keys",
        "PEM files with public keys. An artifact must be signed by one of them. []: no signature required.",
    ),
    (
        "signatures.trustedRoot",
        "trusted_root.json of Sigstore, for signers with issuer and subject. Read at each load, never fetched.",
    ),
    (
        "signatures.tuf",
        "TUF repository that publishes the trusted root, instead of trustedRoot. Refreshed in the background. Needs registries.cacheDirectory.",
    ),
    (
        "signatures.tuf.url",
        "URL of the repository, such as https://tuf-repo-cdn.sigstore.dev. The metadata is there, and targets are below targets/.",
    ),
    (
        "signatures.tuf.root",
        "root.json that you have verified. Every later root must follow from it.",
    ),
    (
        "signatures.tuf.target",
        "Name of the target that is the trusted root. Default: trusted_root.json.",
    ),
    (
        "signatures.tuf.refreshInterval",
        "Interval at which Tollgate asks the repository.",
    ),
    (
        "signatures.tuf.lastKnownGoodFor",
        "How long the trusted root counts after its metadata has expired.",
    ),
    (
        "signatures.policies",
        "Policies. The first one that covers a repository decides; a repository that none covers is refused.",
    ),
    (
        "policies[].name",
        "At most 63 of a-z, 0-9 and -. Unique. Used in messages.",
    ),
    (
        "policies[].repositories",
        "Repositories without tags. * stands for characters except /, ** for any characters.",
    ),
    (
        "policies[].signers",
        "Who may sign: a key, or an identity. []: no signature required.",
    ),
    ("signers[].name", "Name in messages."),
    ("signers[].key", "PEM file with public keys."),
    (
        "signers[].issuer",
        "Issuer of the identity, such as https://token.actions.githubusercontent.com. May have * and **.",
    ),
    (
        "signers[].subject",
        "Identity: an email address or a URI. May have * and **.",
    ),
    (
        "policies[].threshold",
        "Number of different signers that must have signed. Default: 1.",
    ),
    (
        "policies[].attestations",
        "What a signer must have attested about the artifact.",
    ),
    (
        "attestations.provenance",
        "SLSA provenance, v0.2 or v1. {}: any.",
    ),
    (
        "provenance.builders",
        "Allowed builders. May have * and **. Default: all.",
    ),
    (
        "provenance.sources",
        "Allowed repositories of the source. May have * and **. Default: all.",
    ),
    (
        "attestations.sbom",
        "Whether an SBOM (SPDX or CycloneDX) must be attested. Default: false.",
    ),
    (
        "attestations.predicateTypes",
        "Further predicate types that must be attested.",
    ),
    (
        "policies[].minimumVersion",
        "Lowest version, by the annotation org.opencontainers.image.version of the signed manifest.",
    ),
    (
        "policies[].signedAfter",
        "Day or time. The certificate of a keyless signature must have been issued then or later.",
    ),
    (
        "policies[].bindRepository",
        "Whether a signature must name the repository that the artifact is loaded from. Default: false.",
    ),
    ("plugins", "The plugins. Mutators run in this order."),
    (
        "plugins[].name",
        "At most 40 of a-z, 0-9 and -. Unique. Used in messages, metrics and annotations.",
    ),
    (
        "source",
        "file: and a path, or oci:// and a reference with a tag or a digest.",
    ),
    (
        "plugins[].group",
        "One verdict from several plugins that validate, with one message, instead of a source.",
    ),
    ("group.members", "The plugins of the group."),
    (
        "group.members[].name",
        "Name in the expression: a-z, 0-9 and _, unique in the group.",
    ),
    (
        "group.expression",
        "When the group allows a request: any, all, or members in CEL, such as signed() || (trusted() && labelled()).",
    ),
    ("group.message", "Message for the user of a denied request."),
    (
        "plugins[].enabled",
        "Whether Tollgate loads and calls the plugin. Default: true.",
    ),
    (
        "plugins[].match",
        "The requests that the plugin is called for. Default: the rules of the plugin's own describe.",
    ),
    (
        "match.rules",
        "Rules as in a webhook configuration. The plugin is called when any of them matches.",
    ),
    (
        "rules[].operations",
        "CREATE, UPDATE, DELETE and CONNECT, or \"*\" alone.",
    ),
    (
        "rules[].apiGroups",
        "Groups such as apps, or \"*\" alone. The core group is \"\".",
    ),
    (
        "rules[].apiVersions",
        "Versions such as v1, or \"*\" alone.",
    ),
    (
        "rules[].resources",
        "Resources such as pods, pods/status, pods/*, \"*\", \"*/scale\" or \"*/*\".",
    ),
    ("rules[].scope", "The scope of the objects. Default: \"*\"."),
    (
        "match.podTemplates",
        "Whether the plugin gets the pod templates of workloads, as Pods. Needs a rule for CREATE of pods. Default: false.",
    ),
    (
        "match.namespaces",
        "Namespaces of objects to match, by exact name. Default: all.",
    ),
    (
        "match.excludeNamespaces",
        "Namespaces of objects to leave out, by exact name.",
    ),
    (
        "match.excludeUsers",
        "Users whose requests to leave out, by exact name.",
    ),
    (
        "match.excludeGroups",
        "Groups whose members' requests to leave out, by exact name.",
    ),
    (
        "namespaceSelector",
        "Labels of the object's namespace. Default: all objects match.",
    ),
    (
        "objectSelector",
        "Labels of the new or the old object. Default: all objects match.",
    ),
    ("matchLabels", "Labels and their values. All must match."),
    (
        "matchExpressions",
        "Requirements for labels. All must hold.",
    ),
    ("matchExpressions[].key", "The key of the label."),
    ("matchExpressions[].operator", "How the label is compared."),
    ("matchExpressions[].values", "Values, for In and NotIn."),
    (
        "matchConditions",
        "At most 64 CEL expressions. All must be true.",
    ),
    (
        "matchConditions[].name",
        "Name of the condition, for messages.",
    ),
    (
        "matchConditions[].expression",
        "A CEL expression about object, oldObject, request and namespaceObject.",
    ),
    (
        "settings",
        "Settings of the plugin, which defines the keys and validates them when it is loaded. Default: {}.",
    ),
    (
        "plugins[].mode",
        "enforce: the plugin denies and changes requests. warn: its denials become warnings. audit: it runs after the answer. Default: enforce.",
    ),
    (
        "failurePolicy",
        "The effect of a fault of the plugin. Fail: the request is denied. Ignore: the plugin is skipped. Default: Fail.",
    ),
    (
        "reinvocationPolicy",
        "IfNeeded: a mutator is called again when a later plugin changed the object. Default: Never.",
    ),
    (
        "existingViolations",
        "allow: an UPDATE passes when the plugin denies only violations that the old object has, too. Default: deny.",
    ),
    (
        "exceptions",
        "Requests that the plugin is not called for until a given time. All lists of an exception must match.",
    ),
    (
        "exceptions[].namespaces",
        "Namespaces of the objects, by exact name.",
    ),
    ("exceptions[].names", "Names of the objects, by exact name."),
    (
        "exceptions[].users",
        "Users of the requests, by exact name.",
    ),
    ("exceptions[].groups", "Groups of the users, by exact name."),
    (
        "exceptions[].name",
        "The name of the exception in metrics and reports.",
    ),
    (
        "exceptions[].until",
        "The last day (in UTC) such as 2026-12-31, a time such as 2026-12-31T18:00:00Z, or never.",
    ),
    (
        "exceptions[].reason",
        "Why. Annotations and logs repeat it.",
    ),
    (
        "capabilities",
        "Imports that the plugin may have beyond the contract. clock: the time of day. cluster: lookups. access: the rights of users. images: signatures of images.",
    ),
    (
        "access",
        "What the plugin may ask about the rights of users. The key grants the capability access.",
    ),
    (
        "access.serviceAccounts",
        "Whether the plugin may also ask about service accounts. Default: false, so only about the user of the request.",
    ),
    (
        "images",
        "The images that the plugin may have verified, and who must have signed them. The key grants the capability images.",
    ),
    (
        "images.registries",
        "The registries that may be asked, as images name them. Docker Hub is docker.io. An image of another registry is refused.",
    ),
    (
        "images.pullSecretNamespaces",
        "Namespaces whose Pods bring credentials along: Tollgate reads their imagePullSecrets, and sends each login only to the registry that its entry names. Needs cluster.enabled, and a Role in each namespace. Default: none.",
    ),
    (
        "images.trustedRoot",
        "Trusted root of keyless signatures, in the JSON format of sigstore. Default: that of signatures. Needed by signers with issuer and subject.",
    ),
    (
        "images.policies",
        "The policies that the plugin may name. They have the keys of signatures.policies.",
    ),
    (
        "images.policies[].repositories",
        "Patterns for registry and repository, without a tag. * stands for characters except /, and ** for any characters. Default: every repository.",
    ),
    (
        "images.policies[].signers",
        "Who may sign: a key, or an issuer and a subject. At least one.",
    ),
    (
        "images.verifiedFor",
        "How long a verified digest counts as verified.",
    ),
    (
        "images.refusedFor",
        "How long a refused digest, or a missing tag, counts as such.",
    ),
    (
        "images.resolvedFor",
        "How long a tag counts as leading to its digest.",
    ),
    (
        "images.lastKnownGoodFor",
        "How long a verified digest counts when its registry does not answer. With 0s, it does not.",
    ),
    (
        "lookups",
        "The objects of the cluster that the plugin may see. They grant the capability cluster.",
    ),
    (
        "lookups[].name",
        "The name by which the plugin asks. Unique in the entry.",
    ),
    ("lookups[].resource", "The resource of the objects."),
    (
        "lookups[].resource.group",
        "The API group. The core group is \"\".",
    ),
    (
        "lookups[].resource.version",
        "The API version without its group, such as v1.",
    ),
    (
        "lookups[].resource.resource",
        "The resource in the plural, such as ingresses.",
    ),
    (
        "lookups[].namespaces",
        "all, or a list of names of namespaces. Default: all.",
    ),
    (
        "lookups[].labelSelector",
        "Labels that the objects must have. Default: all objects.",
    ),
    (
        "lookups[].fields",
        "The fields that the plugin sees, such as /spec/rules/*/host. Nothing else is kept. Default: names only.",
    ),
    (
        "lookups[].indexes",
        "The keys by which the plugin finds objects: by name, a place such as /spec/rules/*/host.",
    ),
    (
        "lookups[].secrets",
        "Must be true if the objects are Secrets.",
    ),
    (
        "allowRemovals",
        "Whether the plugin may answer with a whole object that lacks fields of the given object. Default: false.",
    ),
    (
        "allowNamespaceExceptions",
        "Whether a PluginException of any namespace counts for the plugin, in that namespace. Needs tenancy. Default: false.",
    ),
    (
        "shadow",
        "Another version that is called with the same requests and decides nothing.",
    ),
    (
        "rollout",
        "The steps by which a new version, or the mode enforce, takes effect. Needs registries.cacheDirectory.",
    ),
    (
        "rollout.to",
        "The new version. Keys that it lacks have the values of the plugin. Without this key, the plugin's own version gets the mode enforce.",
    ),
    (
        "rollout.steps",
        "The steps in order: modes shadow, warn and enforce, with shares that do not shrink. The last one enforces.",
    ),
    (
        "steps[].mode",
        "The part of the new version: shadow is compared after the answer, warn makes its denials warnings, enforce lets it answer.",
    ),
    (
        "steps[].share",
        "Share of the namespaces, in percent, chosen by a hash that does not change. Default: 100, or 0 beside namespaces.",
    ),
    (
        "steps[].namespaces",
        "Namespaces that belong to the step besides those of the share.",
    ),
    ("steps[].for", "Minimum duration of the step."),
    ("rollout.gates", "The conditions of every step."),
    (
        "gates.newDenials",
        "Maximum number of requests in a step that the new version denies and the old one does not. Default: 0.",
    ),
    (
        "gates.faults",
        "Maximum number of faults of the new version in a step. Default: 0.",
    ),
    (
        "gates.addedTime",
        "Maximum CPU time that a call of the new version takes longer on average, in steps that warn or enforce. Default: no limit.",
    ),
    (
        "gates.minReviews",
        "Minimum number of calls of the new version in a step. Default: 20.",
    ),
    (
        "rollout.onFailure",
        "What new denials and added time above the gates do: rollback or stop. Faults always roll back. Default: rollback.",
    ),
];

{{/* The name of all objects, and of the installation. 40 characters leave room for suffixes. */}}
{{- define "tollgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
app.kubernetes.io/instance: {{ include "tollgate.fullname" . }}
{{- end -}}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tollgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tollgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The number that a quantity or a count stands for, such as 64Mi, 1.5Gi, 5k or 4096. */}}
{{- define "tollgate.number" -}}
{{- $text := toString . -}}
{{- if kindIs "float64" . -}}{{- $text = toString (int64 .) -}}{{- end -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $factors := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- if or (not $number) (not (hasKey $factors $unit)) -}}
{{- fail (printf "%s is not a number: expected digits and one of Ki, Mi, Gi, Ti, k, M, G, T" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $factors $unit) | floor | int64 -}}
{{- end -}}

{{/* Whole seconds of a duration in Go's syntax, such as 25s or 1m30s, rounded up. */}}
{{- define "tollgate.seconds" -}}
{{- $total := 0.0 -}}
{{- $factors := dict "ns" 0.000000001 "us" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- range regexFindAll "[0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" . -}}
{{- $total = addf $total (mulf (float64 $number) (get $factors (trimPrefix $number .))) -}}
{{- end -}}
{{- ceil $total | int64 -}}
{{- end -}}

{{/* The sections that the chart writes are not to be given in config. */}}
{{- define "tollgate.validate" -}}
{{- $instead := dict "listen" "listenAddress" "probes" "listenAddress" "tls" "tls.secretName" "cluster" "cluster.enabled" "startupPeers" "replicas" -}}
{{- range $key, $value := $instead -}}
{{- if hasKey $.Values.config $key -}}
{{- fail (printf "config.%s is written by the chart: use the value %s, or the plain manifests" $key $value) -}}
{{- end -}}
{{- end -}}
{{- if .Values.scan.enabled -}}
{{- if not .Values.cluster.enabled -}}
{{- fail "scan.enabled needs cluster.enabled: the replicas share the scan by their Leases" -}}
{{- end -}}
{{- end -}}
{{- range $key := list "enabled" "format" "resources" -}}
{{- if hasKey (default dict $.Values.config.scan) $key -}}
{{- fail (printf "config.scan.%s is written by the chart: use the value scan.%s" $key $key) -}}
{{- end -}}
{{- end -}}
{{- if .Values.admin.enabled -}}
{{- if not .Values.cluster.enabled -}}
{{- fail "admin.enabled needs cluster.enabled: kube-apiserver verifies the tokens" -}}
{{- end -}}
{{- range $key := list "listen" "authentication" -}}
{{- if hasKey (default dict $.Values.config.admin) $key -}}
{{- fail (printf "config.admin.%s is written by the chart: set admin.enabled to false to write it yourself" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tenancy.enabled (not .Values.cluster.enabled) -}}
{{- fail "tenancy.enabled needs cluster.enabled: custom resources bring the plugins of namespaces" -}}
{{- end -}}
{{- if and .Values.tenancy.enabled (not .Values.config.tenancy) -}}
{{- fail "tenancy.enabled needs config.tenancy, which says what plugins of namespaces may do" -}}
{{- end -}}
{{- if and .Values.config.tenancy (not .Values.tenancy.enabled) -}}
{{- fail "config.tenancy needs tenancy.enabled: true, which grants the permissions for it" -}}
{{- end -}}
{{- if not .Values.cluster.enabled -}}
{{- if not .Values.tls.secretName -}}
{{- fail "tls.secretName is required when cluster.enabled is false: replicas without permissions cannot share a CA" -}}
{{- end -}}
{{- if not (or .Values.config.plugins .Values.config.allowEmpty) -}}
{{- fail "config.plugins is required when cluster.enabled is false: plugins have no other source" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* tollgate.yaml as a dictionary: the chart's defaults, then config, then the sections that only the chart writes. */}}
{{- define "tollgate.config" -}}
{{- include "tollgate.validate" . -}}
{{- $name := include "tollgate.fullname" . -}}
{{- $defaults := dict
  "plugins" (list)
  "requests" (dict "maxInFlight" "64Mi" "maxDecoded" "128Mi" "maxConnections" 500 "shutdownGracePeriod" "25s")
  "engine" (dict "maxConcurrentCalls" 32 "maxMemory" "256Mi" "loadMemory" "256Mi" "cacheDirectory" "/var/cache/tollgate/code")
  "registries" (dict "cacheDirectory" "/var/lib/tollgate/artifacts" "maxCache" "96Mi")
  "limits" (dict "concurrency" 16 "output" "4Mi")
  "startupGrace" "5m"
-}}
{{- if .Values.cluster.enabled -}}{{- $_ := set $defaults "allowEmpty" true -}}{{- end -}}
{{- if .Values.registryCredentialsSecret -}}
{{- $_ := set $defaults.registries "credentials" "/etc/tollgate/registry/.dockerconfigjson" -}}
{{- end -}}
{{- $config := mustMergeOverwrite $defaults (deepCopy .Values.config) -}}
{{- $_ := set $config "listen" (printf "%s:8443" .Values.listenAddress) -}}
{{- $_ := set $config "probes" (dict "listen" (printf "%s:8080" .Values.listenAddress)) -}}
{{- if .Values.admin.enabled -}}
{{- $tokenReview := dict -}}
{{- with .Values.admin.audiences -}}{{- $_ := set $tokenReview "audiences" . -}}{{- end -}}
{{- $admin := dict "listen" (printf "%s:8081" .Values.listenAddress) "authentication" (dict "tokenReview" $tokenReview) -}}
{{- $_ := set $config "admin" (mergeOverwrite (default dict $config.admin) $admin) -}}
{{- end -}}
{{- $_ := set $config "startupPeers" (list (printf "%s-peers.%s.svc:8080" $name .Release.Namespace)) -}}
{{- if .Values.cluster.enabled -}}
{{- $_ := set $config "cluster" (dict "enabled" true "installation" $name "registration" (dict "service" $name "anchor" (printf "%s-anchor" $name))) -}}
{{- end -}}
{{- if .Values.scan.enabled -}}
{{- $scan := dict "enabled" true "format" .Values.scan.format "resources" .Values.scan.resources -}}
{{- $_ := set $config "scan" (mergeOverwrite (default dict $config.scan) $scan) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $config "tls" (dict "certificate" "/etc/tollgate/tls/tls.crt" "key" "/etc/tollgate/tls/tls.key") -}}
{{- else -}}
{{- $_ := set $config "tls" (dict "selfSigned" (dict "directory" "/var/lib/tollgate/tls" "service" (printf "%s.%s" $name .Release.Namespace))) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/*
The memory limit in MiB, by the formula of docs/guides/sizing.md: the serving process, the processes that prepare plugins
(two for each processor), and the volumes in memory.
*/}}
{{- define "tollgate.memory" -}}
{{- $config := include "tollgate.config" . | fromYaml -}}
{{- $mebibyte := 1048576 -}}
{{- $stack := include "tollgate.number" (dig "maxWasmStack" "512Ki" $config.engine) | int64 -}}
{{- $output := include "tollgate.number" $config.limits.output | int64 -}}
{{- $concurrency := include "tollgate.number" $config.limits.concurrency | int64 -}}
{{- range $config.plugins -}}
{{- $limits := dig "limits" dict . -}}
{{- $output = max $output (include "tollgate.number" (default $config.limits.output (get $limits "output")) | int64) -}}
{{- $concurrency = max $concurrency (include "tollgate.number" (default $config.limits.concurrency (get $limits "concurrency")) | int64) -}}
{{- end -}}
{{- $decisions := include "tollgate.number" (dig "admin" "decisions" "maxBytes" "2Mi" $config) | int64 -}}
{{- $answers := include "tollgate.number" (dig "answerCache" "8Mi" $config.engine) | int64 -}}
{{- $process := add (mul 128 $mebibyte) (sub $decisions (mul 2 $mebibyte)) (max 0 (sub $answers (mul 8 $mebibyte))) -}}
{{- $plugins := mul (int64 .Values.sizing.pluginCount) (add 8 $concurrency) $mebibyte -}}
{{- $connections := mul (include "tollgate.number" $config.requests.maxConnections | int64) 131072 -}}
{{- $documents := add (include "tollgate.number" $config.requests.maxInFlight | int64) (include "tollgate.number" $config.requests.maxDecoded | int64) -}}
{{- $memories := include "tollgate.number" $config.engine.maxMemory | int64 -}}
{{- $calls := mul (include "tollgate.number" $config.engine.maxConcurrentCalls | int64) (add $stack $mebibyte $output) -}}
{{- $scan := 0 -}}
{{- if .Values.scan.enabled -}}
{{- $page := include "tollgate.number" (dig "maxPage" "8Mi" $config.scan) | int64 -}}
{{- $results := include "tollgate.number" (dig "maxMemory" "64Mi" $config.scan) | int64 -}}
{{- $scan = add $results (mul 8 $page) (include "tollgate.number" $config.requests.maxDecoded | int64) -}}
{{- end -}}
{{- $loading := mul 2 (int64 .Values.sizing.processors) (include "tollgate.number" $config.engine.loadMemory | int64) -}}
{{- $volumes := add (include "tollgate.number" .Values.volumes.code | int64) (include "tollgate.number" .Values.volumes.state | int64) -}}
{{- $sum := add $process $plugins $connections $documents (div $documents 4) $memories $calls $scan $loading $volumes -}}
{{- div (add $sum $mebibyte -1) $mebibyte -}}
{{- end -}}

{{- define "tollgate.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if not (dig "limits" "memory" "" $resources) -}}
{{- $_ := set $resources "limits" (merge (dict "memory" (printf "%sMi" (include "tollgate.memory" .))) (default dict $resources.limits)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

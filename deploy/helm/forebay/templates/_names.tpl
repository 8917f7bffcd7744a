{{/* The release's name, for what is in a namespace. */}}
{{- define "forebay.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* For what is in no namespace: two releases may have one name in two namespaces. */}}
{{- define "forebay.clusterName" -}}
{{- printf "%s-%s" (.Release.Namespace | trunc 60 | trimSuffix "-") (include "forebay.name" .) -}}
{{- end }}

{{- define "forebay.serviceAccount" -}}
{{- default (include "forebay.name" .) .Values.serviceAccount.name -}}
{{- end }}

{{- define "forebay.user" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "forebay.serviceAccount" .) -}}
{{- end }}

{{/* What selects the pods of a component. */}}
{{- define "forebay.selector" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ include "forebay.name" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "forebay.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The namespaces in which gangs run, each once, as a JSON list. */}}
{{- define "forebay.jobNamespaces" -}}
{{- $all := list .Values.kubernetes.namespace -}}
{{- range $queue, $namespace := .Values.kubernetes.namespaces -}}
{{- $all = append $all $namespace -}}
{{- end -}}
{{- $all | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* What every container of ours has. */}}
{{- define "forebay.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Admission policies are about the controller and nobody else. */}}
{{- define "forebay.ofController" -}}
- name: is-the-controller
  expression: request.userInfo.username == {{ include "forebay.user" . | squote }}
{{- end }}

{{/* What a schema cannot say in words that help. */}}
{{- define "forebay.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: not set, and there is no public image; build one by deploy/image/Dockerfile, push it to a registry of yours, and name it, such as registry.example.com/forebay" -}}
{{- end -}}
{{- if not .Values.config.ec2 -}}
{{- fail "config.ec2: not set, so that there would be no nodes for gangs to run on; write what instances are launched with, as docs/EC2.md shows" -}}
{{- end -}}
{{- range list "apiVersion" "kind" "listen" "data" "policy" "tokens" "kubernetes" "cluster" "standby" -}}
{{- if hasKey $.Values.config . -}}
{{- fail (printf "config.%s: the chart writes this key itself; use the value of that name where there is one, and leave it out here" .) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.templates -}}
{{- fail "templates: no pod template, so no job could run; write one, as docs/KUBERNETES.md shows: --set-file templates.train=train.yaml" -}}
{{- end -}}
{{- if not .Values.tokens -}}
{{- fail "tokens: nobody may call the API, which listens beyond loopback; list who may, such as {name: on-call, roles: [operate], secretKey: on-call}" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.from) -}}
{{- fail "networkPolicy.from: not set, so that the network policy would keep out the Prometheus that podMonitor is for; name its namespace, such as {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}" -}}
{{- end -}}
{{- if .Values.agent.enabled -}}
{{- if and .Values.networkPolicy.enabled .Values.agent.hostNetwork (not .Values.agent.nodeCIDRs) -}}
{{- fail "agent.nodeCIDRs: not set, so that the network policy would keep out the agents, which have the addresses of their nodes; list them, such as 10.0.0.0/16" -}}
{{- end -}}
{{- end -}}
{{- end }}

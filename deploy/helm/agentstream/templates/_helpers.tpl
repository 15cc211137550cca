{{- define "agentstream.labels" -}}
app.kubernetes.io/name: agentstream
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "agentstream.selector" -}}
{app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .role }}}
{{- end }}

{{- define "agentstream.name" -}}
{{ .root.Release.Name }}-{{ .role }}
{{- end }}

{{- /* What the pods of every role have: who they are, and where they run. */ -}}
{{- define "agentstream.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- $own := get .root.Values .role }}
{{- with $own.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $own.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- if ne .role "migrate" }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "agentstream.selector" $ }}}
  {{- end }}
{{- end }}
volumes:
  - name: secrets
    secret: {secretName: {{ (get .root.Values.secrets .role).name }}}
  {{- with .root.Values.natsTLS.secretName }}
  - name: nats-tls
    secret: {secretName: {{ . }}}
  {{- end }}
  {{- if and (eq .role "edge") .root.Values.edge.tls.secretName }}
  - name: tls
    secret: {secretName: {{ .root.Values.edge.tls.secretName }}}
  {{- end }}
{{- end }}

{{- /* What the containers of every role have, after their own arguments. */ -}}
{{- define "agentstream.container" -}}
{{- $own := get .root.Values .role }}
{{- $nats := .root.Values.natsTLS }}
  - --log={{ .root.Values.log.format }}
  - --level={{ .root.Values.log.level }}
  {{- if $nats.secretName }}
  - --nats-ca=/run/secrets/nats-tls/ca.crt
  {{- if $nats.clientCertificate }}
  - --nats-cert=/run/secrets/nats-tls/tls.crt
  - --nats-key=/run/secrets/nats-tls/tls.key
  {{- end }}
  {{- end }}
  {{- range $own.args }}
  - {{ toJson . }}
  {{- end }}
env:
  - {name: AGENTSTREAM_NATS_FILE, value: /run/secrets/agentstream/nats_url_{{ .role }}}
  - {name: AGENTSTREAM_POSTGRES_FILE, value: /run/secrets/agentstream/postgres_{{ has .role (list "edge" "worker") | ternary "reader" "owner" }}}
  {{- if eq .role "edge" }}
  - {name: AGENTSTREAM_AUTH_TOKEN_FILE, value: /run/secrets/agentstream/auth_token}
  {{- end }}
  {{- range $own.env }}
  - {{ toJson . }}
  {{- end }}
image: {{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- with $own.resources }}
resources: {{ toJson . }}
{{- end }}
{{- if ne .role "migrate" }}
livenessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 2}
ports:
  {{- if eq .role "edge" }}
  - {name: clients, containerPort: 8080}
  {{- end }}
  - {name: admin, containerPort: 8081}
  - {name: health, containerPort: 8083}
{{- end }}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/agentstream, readOnly: true}
  {{- if $nats.secretName }}
  - {name: nats-tls, mountPath: /run/secrets/nats-tls, readOnly: true}
  {{- end }}
  {{- if and (eq .role "edge") .root.Values.edge.tls.secretName }}
  - {name: tls, mountPath: /run/secrets/tls, readOnly: true}
  {{- end }}
{{- end }}

{{- /* Pods are not scraped by annotation where a ServiceMonitor scrapes them. */ -}}
{{- define "agentstream.annotations" -}}
{{- $own := get .root.Values .role }}
{{- $scrape := ternary dict (dict "prometheus.io/scrape" "true" "prometheus.io/port" "8081") .root.Values.monitoring.serviceMonitor.enabled }}
{{- toJson (merge dict $own.podAnnotations $scrape) }}
{{- end }}

{{- define "agentstream.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "agentstream.name" . }}
  labels: {{- include "agentstream.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ (get .root.Values .role).maxUnavailable }}
  selector: {matchLabels: {{ include "agentstream.selector" . }}}
{{- end }}

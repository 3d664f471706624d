{{- define "stanchion.selector" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}

{{- define "stanchion.labels" -}}
{{ include "stanchion.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "stanchion.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{- /* The seats of one pod, which autoscalers count in. */ -}}
{{- define "stanchion.seats" -}}
{{- mul .Values.workers (ternary .Values.threads .Values.workerConcurrency (eq .Values.interface "wsgi")) -}}
{{- end }}

{{- /* drain_delay, graceful_timeout, and some seconds to spare. */ -}}
{{- define "stanchion.grace" -}}
{{- add .Values.drainDelay .Values.gracefulTimeout 5 -}}
{{- end }}

{{- /* Pods are taken away slowly, and added as fast as Kubernetes does by itself. */ -}}
{{- define "stanchion.behavior" -}}
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownSeconds }}
{{- end }}

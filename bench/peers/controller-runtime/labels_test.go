package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

const configuration = `{"listen": "127.0.0.1:0", "plugins": [{"name": "plugin-0", "source": "file:plugin.wasm",
	"settings": {"labels": {"app.kubernetes.io/name": null, "team": "[a-z]{1,10}"}}}]}`

func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// review sends a review through the whole webhook, except for TLS.
func review(t *testing.T, operation, labels string) *admissionv1.AdmissionResponse {
	t.Helper()
	policy, err := ReadRequiredLabels(written(t, configuration))
	if err != nil {
		t.Fatal(err)
	}
	hook, err := newWebhook(policy)
	if err != nil {
		t.Fatal(err)
	}
	pod := `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop", "labels": ` + labels + `},
		"spec": {"containers": [{"name": "app", "image": "registry.example.com/app:1"}]}}`
	object, oldObject := pod, "null"
	switch operation {
	case "UPDATE":
		oldObject = pod
	case "DELETE":
		object, oldObject = "null", pod
	}
	body := `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1",
		"kind": {"group": "", "version": "v1", "kind": "Pod"},
		"resource": {"group": "", "version": "v1", "resource": "pods"},
		"operation": "` + operation + `", "userInfo": {}, "object": ` + object + `, "oldObject": ` + oldObject + `}}`
	request := httptest.NewRequest(http.MethodPost, "/validate?timeout=10s", bytes.NewBufferString(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	hook.ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	if review.Response == nil || review.Response.UID != "1" {
		t.Fatalf("expected a response with the uid of the request: %s", answer.Body)
	}
	return review.Response
}

func TestDeniesMissingAndMalformedLabels(t *testing.T) {
	cases := []struct{ operation, labels, problem string }{
		{"CREATE", `{"app.kubernetes.io/name": "shop", "team": "blue"}`, ""},
		{"CREATE", `{"team": "blue"}`, "label app.kubernetes.io/name is required"},
		{"CREATE", `{"app.kubernetes.io/name": "", "team": "Blue"}`, "label team must match"},
		{"CREATE", `{"app.kubernetes.io/name": "", "team": "blue-green"}`, "label team must match"},
		{"UPDATE", `{}`, "label app.kubernetes.io/name is required; label team is required"},
		{"DELETE", `{}`, ""},
	}
	for _, test := range cases {
		response := review(t, test.operation, test.labels)
		if response.Allowed != (test.problem == "") {
			t.Errorf("%s of %s: allowed is %t", test.operation, test.labels, response.Allowed)
		}
		if test.problem != "" && !strings.Contains(response.Result.Message, test.problem) {
			t.Errorf("%s of %s: expected %q in %q", test.operation, test.labels, test.problem, response.Result.Message)
		}
	}
}

func TestRejectsConfigurationThatItCannotCheck(t *testing.T) {
	cases := map[string]string{
		"plugins:":              "must be JSON",
		`{"plugins": []}`:       "has 0 plugins",
		`{"plugins": [{}, {}]}`: "has 2 plugins",
		`{"plugins": [{}]}`:     "at least one label",
		strings.Replace(configuration, "[a-z]", "[a-", 1): "the pattern of label team",
	}
	for text, problem := range cases {
		_, err := ReadRequiredLabels(written(t, text))
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: expected %q, got %v", text, problem, err)
		}
	}
}

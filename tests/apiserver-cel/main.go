// Measures kube-apiserver's own evaluation of a ValidatingAdmissionPolicy, in this process.
//
// Reads {"policy": {…}, "object": {…}} and prints {"decisions": ["admit", …], "validate": NANOSECONDS} on one line. The
// parts are compiled as `compilePolicy` in k8s.io/apiserver does, which is private there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

type question struct {
	Policy v1.ValidatingAdmissionPolicy `json:"policy"`
	Object map[string]any               `json:"object"`
}

func compiled(policy *v1.ValidatingAdmissionPolicy) (validating.Validator, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	full := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	plain := cel.OptionalVariableDeclarations{}
	spec, mode := &policy.Spec, environment.StoredExpressions
	var variables []cel.NamedExpressionAccessor
	for i := range spec.Variables {
		variables = append(variables, &validating.Variable{
			Name: spec.Variables[i].Name, Expression: spec.Variables[i].Expression,
		})
	}
	compiler.CompileAndStoreVariables(variables, full, mode)
	var matcher matchconditions.Matcher
	if len(spec.MatchConditions) > 0 {
		var conditions []cel.ExpressionAccessor
		for i := range spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&spec.MatchConditions[i]))
		}
		evaluator := compiler.CompileCondition(conditions, full, mode)
		matcher = matchconditions.NewMatcher(evaluator, spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	validations := make([]cel.ExpressionAccessor, len(spec.Validations))
	messages := make([]cel.ExpressionAccessor, len(spec.Validations))
	for i, validation := range spec.Validations {
		validations[i] = &validating.ValidationCondition{
			Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason,
		}
		if validation.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression}
		}
	}
	var annotations []cel.ExpressionAccessor
	for _, annotation := range spec.AuditAnnotations {
		annotations = append(annotations, &validating.AuditAnnotationCondition{
			Key: annotation.Key, ValueExpression: annotation.ValueExpression,
		})
	}
	return validating.NewValidator(
		compiler.CompileCondition(validations, full, mode),
		matcher,
		compiler.CompileCondition(annotations, full, mode),
		compiler.CompileCondition(messages, plain, mode),
		spec.FailurePolicy,
		nil,
	), nil
}

func run() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("expected a policy and an object: %w", err)
	}
	validator, err := compiled(&asked.Policy)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: asked.Object}
	kind := object.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "pods"}
	namespace := &corev1.Namespace{}
	namespace.Name = object.GetNamespace()
	attributes := admission.NewAttributesRecord(
		object, nil, kind, object.GetNamespace(), object.GetName(), resource, "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "jane"},
	)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: object, VersionedKind: kind}
	evaluate := func() validating.ValidateResult {
		budget := int64(apiservercel.RuntimeCELCostBudget)
		return validator.Validate(context.Background(), resource, versioned, nil, namespace, budget, nil)
	}
	decisions := []string{}
	for _, decision := range evaluate().Decisions {
		if decision.Evaluation == validating.EvalError {
			return fmt.Errorf("the policy fails: %s", decision.Message)
		}
		decisions = append(decisions, string(decision.Action))
	}
	measured := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			evaluate()
		}
	})
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"decisions": decisions, "validate": measured.NsPerOp(),
	})
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// RequiredLabels denies Pods without the given labels. A pattern applies to the whole value of a label.
type RequiredLabels struct {
	demands []demand
}

type demand struct {
	label string
	// pattern is nil if any value is allowed.
	pattern *regexp.Regexp
}

// settings are those of the plugin `required-labels`, as far as the benchmark uses them.
type settings struct {
	Labels map[string]*string `json:"labels"`
}

var _ admission.Validator[*corev1.Pod] = &RequiredLabels{}

// ReadRequiredLabels reads the settings of the only plugin in a configuration of Tollgate.
func ReadRequiredLabels(file string) (*RequiredLabels, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	var configuration struct {
		Plugins []struct {
			Settings settings `json:"settings"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(text, &configuration); err != nil {
		return nil, fmt.Errorf("cannot parse %s, which must be JSON: %w", file, err)
	}
	if found := len(configuration.Plugins); found != 1 {
		return nil, fmt.Errorf("%s has %d plugins; expected one, because this webhook has one check", file, found)
	}
	return newRequiredLabels(configuration.Plugins[0].Settings)
}

func newRequiredLabels(settings settings) (*RequiredLabels, error) {
	if len(settings.Labels) == 0 {
		return nil, errors.New("expected at least one label in the settings")
	}
	policy := &RequiredLabels{}
	for label, text := range settings.Labels {
		demand := demand{label: label}
		if text != nil {
			pattern, err := regexp.Compile("^(?:" + *text + ")$")
			if err != nil {
				return nil, fmt.Errorf("the pattern of label %s: %w", label, err)
			}
			demand.pattern = pattern
		}
		policy.demands = append(policy.demands, demand)
	}
	sort.Slice(policy.demands, func(i, j int) bool { return policy.demands[i].label < policy.demands[j].label })
	return policy, nil
}

// ValidateCreate checks a new Pod.
func (policy *RequiredLabels) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, policy.check(pod)
}

// ValidateUpdate checks the new version of a Pod.
func (policy *RequiredLabels) ValidateUpdate(_ context.Context, _, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, policy.check(pod)
}

// ValidateDelete allows every deletion.
func (policy *RequiredLabels) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func (policy *RequiredLabels) check(pod *corev1.Pod) error {
	var problems []string
	for _, demand := range policy.demands {
		value, found := pod.Labels[demand.label]
		switch {
		case !found:
			problems = append(problems, fmt.Sprintf("label %s is required", demand.label))
		case demand.pattern != nil && !demand.pattern.MatchString(value):
			problems = append(problems, fmt.Sprintf("label %s must match %s", demand.label, demand.pattern))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

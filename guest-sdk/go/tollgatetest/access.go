package tollgatetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/access"
)

// Access grants the capability access, with rules as in a suite: somebody may do something.
// Everything else is denied.
//
//	Create(pod).Access(`{"user": "anna", "verb": "delete", "apiGroup": "apps", "resource": "deployments"}`)
//
// A rule has user or group, verb, apiGroup (default ""), resource such as pods or pods/exec,
// namespace and name (default: every one), or path instead of these. "*" matches everything.
func (review *Review) Access(rules ...any) *Review {
	granted := &rights{review: review}
	for _, rule := range rules {
		granted.rules = append(granted.rules, ruleOf(rule))
	}
	review.access = granted
	return review
}

// AccessUnavailable grants the capability access. Every question is unavailable.
func (review *Review) AccessUnavailable() *Review {
	review.access = &rights{review: review, isAway: true}
	return review
}

// rights answers questions by rules.
type rights struct {
	review *Review
	rules  []rule
	isAway bool
}

// rule has the keys of a rule in a suite.
type rule struct {
	User, Group           *string
	Verb                  string
	APIGroup              string `json:"apiGroup"`
	Resource              *string
	Namespace, Name, Path *string
}

func ruleOf(written any) rule {
	var read rule
	decoder := json.NewDecoder(bytes.NewReader(must(json.Marshal(parse(written)))))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		panic(fmt.Sprintf("the test's rule is malformed: %v", err))
	}
	if (read.User == nil) == (read.Group == nil) {
		panic("a rule of the test has one of user and group")
	}
	if (read.Resource == nil) == (read.Path == nil) {
		panic("a rule of the test has one of resource and path")
	}
	if read.Verb == "" {
		panic("a rule of the test has a verb")
	}
	return read
}

func (rights *rights) Check(question access.Question) (access.Decision, error) {
	if rights == nil {
		text := "the capability is not granted; a test grants it: Review.Access"
		return access.Decision{}, &access.Failure{Kind: access.ErrNotGranted, Text: text}
	}
	if rights.isAway {
		return access.Decision{}, &access.Failure{Kind: access.ErrUnavailable, Text: "kube-apiserver does not answer"}
	}
	user, groups := rights.asker(question.Account)
	for index, rule := range rights.rules {
		if rule.isFor(user, groups) && rule.covers(question) {
			return access.Decision{Allowed: true, Reason: fmt.Sprintf("access[%d] allows it", index)}, nil
		}
	}
	return access.Decision{Reason: "no rule of access allows it"}, nil
}

func (rights *rights) asker(account *access.ServiceAccount) (string, []string) {
	if account != nil {
		groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace}
		return "system:serviceaccount:" + account.Namespace + ":" + account.Name, groups
	}
	info := must(json.Marshal(rights.review.request["userInfo"]))
	var user struct {
		Username string
		Groups   []string
	}
	if err := json.Unmarshal(info, &user); err != nil {
		panic(fmt.Sprintf("the user of the test is malformed: %v", err))
	}
	return user.Username, user.Groups
}

func (rule rule) isFor(user string, groups []string) bool {
	if rule.User != nil {
		return matches(*rule.User, user)
	}
	return slices.Contains(groups, *rule.Group)
}

func (rule rule) covers(question access.Question) bool {
	if question.Path != nil {
		if rule.Path == nil || !matches(rule.Verb, question.Path.Verb) {
			return false
		}
		if beginning, isOpen := strings.CutSuffix(*rule.Path, "*"); isOpen {
			return strings.HasPrefix(question.Path.Path, beginning)
		}
		return *rule.Path == question.Path.Path
	}
	asked := question.Resource
	if rule.Resource == nil || !matches(rule.Verb, asked.Verb) || !matches(rule.APIGroup, asked.Group) {
		return false
	}
	resource, subresource, _ := strings.Cut(*rule.Resource, "/")
	isResource := *rule.Resource == "*" || matches(resource, asked.Resource) && subresource == asked.Subresource
	isNamespace := rule.Namespace == nil || *rule.Namespace == asked.Namespace
	return isResource && isNamespace && (rule.Name == nil || *rule.Name == asked.Name)
}

func matches(pattern, text string) bool { return pattern == "*" || pattern == text }

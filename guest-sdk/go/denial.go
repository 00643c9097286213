package tollgate

import "strings"

// A Denial denies a request. Validate and Mutate return it as the error.
type Denial struct {
	// Message is the main message for the user.
	Message string
	// Code is an HTTP status from 400 to 499; 0 means 403.
	Code uint16
	// Reason is a Kubernetes StatusReason such as Invalid; empty means Forbidden.
	Reason string
	// Causes has one cause for each wrong field.
	Causes []Cause
}

// A Cause is one reason for a denial.
type Cause struct {
	// Field is a pointer to the wrong field. Users see it as a Kubernetes field path. Empty if the
	// cause is not a single field.
	Field string
	// Message says what a correct value would be. Leave out the object's values, because they may be
	// secret.
	Message string
	// Reason is a Kubernetes CauseType such as [ValueInvalid], or empty.
	Reason string
}

// The CauseTypes of Kubernetes.
const (
	// ValueRequired is for a required field that is missing.
	ValueRequired = "FieldValueRequired"
	// ValueInvalid is for a field whose value is malformed or out of range.
	ValueInvalid = "FieldValueInvalid"
	// ValueNotSupported is for a field whose value is not one of the possible ones.
	ValueNotSupported = "FieldValueNotSupported"
	// ValueForbidden is for a field whose value is well formed but not permitted.
	ValueForbidden = "FieldValueForbidden"
)

// Deny returns a denial with HTTP status 403 and no causes.
func Deny(format string, arguments ...any) *Denial {
	return &Denial{Message: text(format, arguments)}
}

// At adds a cause for a field, and returns the denial.
func (denial *Denial) At(field, format string, arguments ...any) *Denial {
	return denial.Because(Cause{Field: field, Message: text(format, arguments)})
}

// Because adds a cause, and returns the denial.
func (denial *Denial) Because(cause Cause) *Denial {
	denial.Causes = append(denial.Causes, cause)
	return denial
}

// WithCode sets the HTTP status, from 400 to 499, and returns the denial.
func (denial *Denial) WithCode(code uint16) *Denial {
	denial.Code = code
	return denial
}

// WithReason sets the Kubernetes StatusReason, such as Invalid, and returns the denial.
func (denial *Denial) WithReason(reason string) *Denial {
	denial.Reason = reason
	return denial
}

// IfBlamed returns the denial if it has causes, and nil otherwise:
//
//	denial := tollgate.Deny("images must carry a digest")
//	for _, node := range review.Object().Select("/spec/containers/*/image") {
//		if text, _ := node.Value.Text(); !strings.Contains(text, "@sha256:") {
//			denial.At(node.Pointer, "has no digest")
//		}
//	}
//	return denial.IfBlamed()
func (denial *Denial) IfBlamed() error {
	if denial == nil || len(denial.Causes) == 0 {
		return nil
	}
	return denial
}

// Error returns the message with its causes.
func (denial *Denial) Error() string {
	if denial == nil {
		return "a nil *tollgate.Denial"
	}
	var text strings.Builder
	text.WriteString(denial.Message)
	for _, cause := range denial.Causes {
		text.WriteString("; ")
		if cause.Field != "" {
			text.WriteString(cause.Field + ": ")
		}
		text.WriteString(cause.Message)
	}
	return text.String()
}

package tollgate

import "strings"

// A Denial refuses a request. It is returned as the error of Validate or Mutate.
type Denial struct {
	// Message is what the user reads first.
	Message string
	// Code is an HTTP status from 400 to 499; 0 means 403.
	Code uint16
	// Reason is a Kubernetes StatusReason such as Invalid; empty means Forbidden.
	Reason string
	// Causes are the single reasons: one for each field that is to blame.
	Causes []Cause
}

// A Cause is one reason for a denial.
type Cause struct {
	// Field is a pointer to the offending field, which users see as Kubernetes writes it. Empty when
	// no single field is to blame.
	Field string
	// Message says what would be right. Leave out the object's values: they may be secret.
	Message string
	// Reason is a Kubernetes CauseType such as [ValueInvalid], or empty.
	Reason string
}

// Kubernetes' CauseTypes.
const (
	// ValueRequired is for a field that has to be there and is not.
	ValueRequired = "FieldValueRequired"
	// ValueInvalid is for a field whose value is malformed or out of range.
	ValueInvalid = "FieldValueInvalid"
	// ValueNotSupported is for a field whose value is not one of those that are possible.
	ValueNotSupported = "FieldValueNotSupported"
	// ValueForbidden is for a field whose value is well formed and not permitted.
	ValueForbidden = "FieldValueForbidden"
)

// Deny is a denial with HTTP status 403 and no causes yet.
func Deny(format string, arguments ...any) *Denial {
	return &Denial{Message: text(format, arguments)}
}

// At blames a field, and gives back the denial.
func (denial *Denial) At(field, format string, arguments ...any) *Denial {
	return denial.Because(Cause{Field: field, Message: text(format, arguments)})
}

// Because adds a cause, and gives back the denial.
func (denial *Denial) Because(cause Cause) *Denial {
	denial.Causes = append(denial.Causes, cause)
	return denial
}

// WithCode asks for another HTTP status, from 400 to 499, and gives back the denial.
func (denial *Denial) WithCode(code uint16) *Denial {
	denial.Code = code
	return denial
}

// WithReason gives a Kubernetes StatusReason such as Invalid, and gives back the denial.
func (denial *Denial) WithReason(reason string) *Denial {
	denial.Reason = reason
	return denial
}

// IfBlamed is the denial when it blames something, and nil otherwise:
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

// Error is the message with its causes.
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

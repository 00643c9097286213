package tollgate

// A Host gives access to a review: Tollgate itself in a plugin, and a review in memory in a test.
// Policies use [Review].
type Host interface {
	Request() Request
	Get(part Part, at string) (Value, bool)
	GetJSON(part Part, at string) (string, bool)
	GetMany(part Part, at []string) []Found
	Keys(part Part, at string) ([]string, bool)
	Select(part Part, pattern string) []Node
	Warn(message string)
	Annotate(key, value string)
	Log(level Level, message string)
}

// A Part is one of the JSON documents of a review.
type Part uint8

// The documents of a review.
const (
	PartObject Part = iota
	PartOldObject
	PartOptions
	PartRequest
	PartNamespace
)

// Found is a value at a pointer, and whether there is one.
type Found struct {
	Value Value
	OK    bool
}

// A Level is the severity of a log message.
type Level uint8

// The levels of the log.
const (
	LevelError Level = iota
	LevelWarn
	LevelInfo
	LevelDebug
	LevelTrace
)

var host Host

// UseHost sets the host for reviews, and returns the previous one. The export packages and package
// tollgatetest call it.
func UseHost(other Host) Host {
	before := host
	host = other
	return before
}

// Log writes one message to the host's log, with the plugin's name and the request's uid. Leave out
// the object's values, because they may be secret.
func Log(level Level, message string) {
	if host != nil {
		host.Log(level, message)
	}
}

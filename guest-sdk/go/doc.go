// Package tollgate is for writing Tollgate admission plugins in Go.
//
// A plugin has three parts: a type that evaluates reviews, a function that creates it from the
// settings, and one call of Export in one of the packages validator, mutator and plugin:
//
//	type Settings struct {
//		MaxReplicas int64 `json:"maxReplicas"`
//	}
//
//	type ReplicaLimit struct{ most int64 }
//
//	func New(settings Settings) (*ReplicaLimit, error) {
//		if settings.MaxReplicas < 1 {
//			return nil, tollgate.SettingsErrorAt("/maxReplicas", "must be at least 1")
//		}
//		return &ReplicaLimit{most: settings.MaxReplicas}, nil
//	}
//
//	func (limit *ReplicaLimit) Validate(review *tollgate.Review) error {
//		replicas, ok := review.Object().Integer("/spec/replicas")
//		if ok && replicas > limit.most {
//			return tollgate.Deny("too many replicas").At("/spec/replicas", "must be at most %d", limit.most)
//		}
//		return nil
//	}
//
//	func init() {
//		validator.Export(tollgate.Manifest{Name: "replica-limit", Version: "1.0.0"}, New)
//	}
//
//	func main() {}
//
// The host calls New once, when it loads the plugin, and keeps the memory that New leaves. Every
// review starts from that memory, and nothing carries over between reviews.
//
// An error that is a [*Denial] denies the request. Any other error, and a panic, is a fault of the
// plugin. The operator reads its text (and a panic's place), and the plugin's failurePolicy decides
// about the request.
package tollgate

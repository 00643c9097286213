package tollgatetest

// namespaceMetadata has the members of a Namespace's metadata that the host shows.
var namespaceMetadata = []string{
	"name", "generateName", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "generation", "resourceVersion", "finalizers",
}

// namespaceDocument returns the Namespace that a policy sees, by the host's rules. It panics if the
// object is in a namespace and the test does not say which labels that has: the host would end the
// call.
func (review *Review) namespaceDocument() (any, bool) {
	text := func(path ...string) string { return textAt(review.request, path...) }
	namespace := review.namespace
	isNamespace := text("resource", "group") == "" && text("resource", "resource") == "namespaces"
	if isNamespace {
		isStoredLater := text("subResource") == "" && (text("operation") == "CREATE" || text("operation") == "UPDATE")
		itself := review.oldObject
		if isStoredLater {
			itself = review.object
		}
		if itself != nil {
			namespace = itself
		}
	}
	if namespace == nil {
		if isNamespace || text("namespace") != "" {
			panic("a test of a policy that reads the namespace sets it: NamespaceObject")
		}
		return nil, false
	}
	metadata := map[string]any{}
	object, _ := namespace.(map[string]any)
	given, _ := object["metadata"].(map[string]any)
	for _, name := range namespaceMetadata {
		if value, ok := given[name]; ok {
			metadata[name] = value
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, true
}

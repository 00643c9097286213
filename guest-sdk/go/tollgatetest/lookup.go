package tollgatetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/cluster"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/tree"
)

// pageSize is the most objects on one page, as in the host.
const pageSize = 500

// Lookup adds a lookup, as the configuration has it under lookups, with the objects that it holds:
//
//	Create(pod).Lookup(`{"name": "ingresses", "fields": ["/spec/rules/*/host"]}`, ingress, another)
//
// The policy sees only the objects' fields, and finds them by indexes. The keys resource,
// labelSelector and secrets have no effect here: give the objects that they select.
func (review *Review) Lookup(configured any, objects ...any) *Review {
	added := &lookup{}
	decoder := json.NewDecoder(bytes.NewReader(must(json.Marshal(parse(configured)))))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(added); err != nil {
		panic(fmt.Sprintf("the test's lookup is malformed: %v", err))
	}
	var patterns [][]string
	for _, pattern := range added.Fields {
		patterns = append(patterns, tree.Tokens(pattern))
	}
	for _, object := range objects {
		whole := parse(object)
		one := entry{whole: whole, found: cluster.Found{
			Namespace: textAt(whole, "metadata", "namespace"), Name: textAt(whole, "metadata", "name"), Fields: "{}",
		}}
		if one.found.Name == "" {
			panic("an object of a lookup has a name")
		}
		if kept, ok := keep(whole, patterns); ok {
			one.found.Fields = compact(kept)
		}
		added.entries = append(added.entries, one)
	}
	sort.Slice(added.entries, func(i, j int) bool {
		one, other := added.entries[i].found, added.entries[j].found
		return one.Namespace < other.Namespace || one.Namespace == other.Namespace && one.Name < other.Name
	})
	return review.withLookup(added)
}

// NotSynchronised adds a lookup that the host has not read yet. All functions of package cluster
// fail for it.
func (review *Review) NotSynchronised(name string) *Review {
	return review.withLookup(&lookup{Name: name, notSynchronised: true})
}

func (review *Review) withLookup(added *lookup) *Review {
	if review.lookups == nil {
		review.lookups = map[string]*lookup{}
	}
	review.lookups[added.Name] = added
	return review
}

// lookup has the keys of a lookup in the configuration, and its objects.
type lookup struct {
	Name            string
	Resource        any
	Namespaces      any
	LabelSelector   any
	Fields          []string
	Indexes         map[string]string
	Secrets         bool
	entries         []entry
	notSynchronised bool
}

type entry struct {
	whole any
	found cluster.Found
}

// lookups is the host of package cluster in a test.
type lookups map[string]*lookup

func (all lookups) Get(name, namespace, object string) (*cluster.Found, error) {
	lookup, err := all.lookup(name)
	if err == nil {
		err = lookup.cover(namespace)
	}
	if err != nil {
		return nil, err
	}
	for _, entry := range lookup.entries {
		if entry.found.Namespace == namespace && entry.found.Name == object {
			return &entry.found, nil
		}
	}
	return nil, nil
}

func (all lookups) Find(name, index, key, after string) (cluster.Page, error) {
	lookup, err := all.lookup(name)
	if err != nil {
		return cluster.Page{}, err
	}
	pattern, ok := lookup.Indexes[index]
	if !ok {
		return cluster.Page{}, notGranted("the lookup %s has no index %s", name, index)
	}
	return lookup.page(after, func(entry entry) bool {
		return slices.ContainsFunc(tree.Select(entry.whole, tree.Tokens(pattern)), func(node tollgate.Node) bool {
			text, ok := keyOf(node.Value)
			return ok && text == key
		})
	}), nil
}

func (all lookups) List(name, namespace, after string) (cluster.Page, error) {
	lookup, err := all.lookup(name)
	if err == nil && namespace != "" {
		err = lookup.cover(namespace)
	}
	if err != nil {
		return cluster.Page{}, err
	}
	return lookup.page(after, func(entry entry) bool {
		return namespace == "" || entry.found.Namespace == namespace
	}), nil
}

func (all lookups) lookup(name string) (*lookup, error) {
	lookup, ok := all[name]
	switch {
	case !ok:
		return nil, notGranted("there is no lookup %s; a test adds it: tollgatetest.Review.Lookup", name)
	case lookup.notSynchronised:
		return nil, &cluster.Failure{Kind: cluster.ErrNotSynchronised, Text: "the lookup " + name}
	}
	return lookup, nil
}

// cover returns an error if the lookup does not cover a namespace. A lookup of some namespaces has no
// cluster-scoped objects, so it does not cover the empty one.
func (lookup *lookup) cover(namespace string) error {
	covered, isLimited := lookup.Namespaces.([]any)
	if !isLimited || slices.Contains(covered, any(namespace)) {
		return nil
	}
	return notGranted("the lookup %s does not cover the namespace %s", lookup.Name, namespace)
}

// page returns the page after a position among the chosen objects.
func (lookup *lookup) page(after string, isChosen func(entry) bool) cluster.Page {
	var chosen []cluster.Found
	for _, entry := range lookup.entries {
		if isChosen(entry) {
			chosen = append(chosen, entry.found)
		}
	}
	begin := 0
	if after != "" {
		begin = must(strconv.Atoi(after))
	}
	if end := begin + pageSize; end < len(chosen) {
		return cluster.Page{Objects: chosen[begin:end], Next: strconv.Itoa(end)}
	}
	return cluster.Page{Objects: chosen[begin:]}
}

func notGranted(format string, arguments ...any) error {
	return &cluster.Failure{Kind: cluster.ErrNotGranted, Text: fmt.Sprintf(format, arguments...)}
}

// keyOf returns the key of a value in an index.
func keyOf(value tollgate.Value) (string, bool) {
	switch value.Kind() {
	case tollgate.Text:
		return value.Text()
	case tollgate.Boolean:
		boolean, _ := value.Boolean()
		return strconv.FormatBool(boolean), true
	case tollgate.Integer:
		integer, _ := value.Integer()
		return strconv.FormatInt(integer, 10), true
	case tollgate.Number:
		number, _ := value.Number()
		return strconv.FormatFloat(number, 'g', -1, 64), true
	default:
		return "", false
	}
}

// keep returns the part of a value that the patterns keep, and false if they keep nothing of it. The
// elements of a list keep their places: an element of which nothing is kept becomes {}, [] or null.
func keep(value any, patterns [][]string) (any, bool) {
	if slices.ContainsFunc(patterns, func(pattern []string) bool { return len(pattern) == 0 }) {
		return value, true
	}
	switch value := value.(type) {
	case map[string]any:
		members := map[string]any{}
		for name, member := range value {
			if kept, ok := keep(member, below(patterns, name)); ok {
				members[name] = kept
			}
		}
		return members, len(members) > 0
	case []any:
		patterns, elements, isKept := below(patterns, "*"), []any{}, false
		for _, element := range value {
			kept, ok := keep(element, patterns)
			if !ok {
				kept = nothingOf(element)
			}
			elements, isKept = append(elements, kept), isKept || ok
		}
		return elements, isKept
	}
	return nil, false
}

// below returns the rests of the patterns that match a member's name.
func below(patterns [][]string, name string) (rest [][]string) {
	for _, pattern := range patterns {
		if pattern[0] == "*" || pattern[0] == name {
			rest = append(rest, pattern[1:])
		}
	}
	return rest
}

// nothingOf returns what holds the place of an element of which nothing is kept.
func nothingOf(element any) any {
	switch element.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return nil
}

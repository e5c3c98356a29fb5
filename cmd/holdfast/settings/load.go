package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file: a wrong path must not fill memory.
const maxFileBytes = 1 << 20

// serviceLink matches the variables that Kubernetes gives every pod for each
// service of its namespace. A service called "holdfast" or "holdfast-peer" makes
// names with our prefix that nobody wrote; refusing them would keep pods down.
var serviceLink = regexp.MustCompile(`^HOLDFAST(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

var portOfLink = regexp.MustCompile(`_PORT_[0-9]+_(TCP|UDP|SCTP)_PORT$`)

// Sources is where values come from besides the flags.
type Sources struct {
	Environ []string // "NAME=value", as os.Environ gives it
	Known   []string // further HOLDFAST_* names that are no mistake
	File    string   // path of the YAML file; empty for none
}

// Load brings in file and environment, below what the flags said. The first
// mistake is returned as an *Error; values already stored are then undefined.
// A variable that is set to nothing counts as not set.
func (t *Table) Load(src Sources) error {
	env, err := t.environment(src)
	if err != nil {
		return err
	}
	if src.File != "" {
		if err := t.loadFile(src.File); err != nil {
			return err
		}
	}
	for _, s := range t.rows {
		if text := env[s.Env()]; text != "" && !t.local {
			if err := s.parse(text); err != nil {
				return &Error{Setting: s.Name, Source: s.Env(), Reason: err.Error(), Fix: s.hint}
			}
		}
		if s.flagText != nil {
			if err := s.parse(*s.flagText); err != nil {
				return &Error{Setting: s.Name, Source: "--" + s.Name, Reason: err.Error(), Fix: s.hint}
			}
		}
	}
	return nil
}

// environment picks our variables and refuses those it does not know, in the
// order of their names so that the message is always the same.
func (t *Table) environment(src Sources) (map[string]string, error) {
	known := make(map[string]bool)
	if !t.local {
		for _, s := range t.rows {
			known[s.Env()] = true
		}
	}
	for _, name := range src.Known {
		known[name] = true
	}
	ours := make(map[string]string)
	var unknown []string
	for _, pair := range src.Environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) || text == "" {
			continue
		}
		if !known[name] && !isServiceLink(name, text) {
			unknown = append(unknown, name)
		}
		ours[name] = text
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		fix := "unset it"
		if near := nearest(unknown[0], known); near != "" {
			fix = "unset it, or did you mean " + near + "?"
		}
		return nil, &Error{Setting: unknown[0], Source: "environment variable " + unknown[0], Reason: "there is no such setting", Fix: fix}
	}
	return ours, nil
}

// isServiceLink recognises Kubernetes' variables. A bare NAME_PORT is one only
// when it holds a URL, so that a made-up HOLDFAST_CLIENT_PORT=7420 is reported.
func isServiceLink(name, text string) bool {
	if !serviceLink.MatchString(name) {
		return false
	}
	return !strings.HasSuffix(name, "_PORT") || strings.HasSuffix(name, "_SERVICE_PORT") ||
		strings.Contains(text, "://") || portOfLink.MatchString(name)
}

// loadFile stores the values of one YAML file.
func (t *Table) loadFile(path string) error {
	bad := func(reason, fix string) error {
		return &Error{Setting: "config", Source: "--config " + path, Reason: reason, Fix: fix}
	}
	text, err := readFile(path)
	if err != nil {
		return bad(err.Error(), "")
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil // an empty file says nothing
	} else if err != nil {
		return bad("not valid YAML: "+strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return bad("it holds more than one YAML document", "keep one")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return bad("it is not a list of \"name: value\" lines", "write for example \"node-id: n1\"")
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if err := t.loadKey(path, key, value, seen); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) loadKey(path string, key, value *yaml.Node, seen map[string]bool) error {
	bad := func(reason, fix string) error {
		source := fmt.Sprintf("%s in %s, line %d", key.Value, path, key.Line)
		return &Error{Setting: key.Value, Source: source, Reason: reason, Fix: fix}
	}
	s := t.lookup(key.Value)
	if s == nil || s.NoFile {
		known := make(map[string]bool)
		for _, s := range t.rows {
			known[s.Name] = true
		}
		fix := "remove it"
		if near := nearest(key.Value, known); near != "" {
			fix = "remove it, or did you mean " + near + "?"
		}
		return bad("there is no such setting", fix)
	}
	if seen[s.Name] {
		return bad("it is there twice", "keep one")
	}
	seen[s.Name] = true
	text, ok := flatten(value, s.many)
	if !ok {
		return bad("it takes a single value", "")
	}
	if text == "" {
		return nil
	}
	if err := s.parse(text); err != nil {
		return bad(err.Error(), s.hint)
	}
	return nil
}

// flatten makes of a YAML value the text that a flag would have got.
func flatten(n *yaml.Node, many bool) (string, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", true
	case n.Kind == yaml.ScalarNode:
		return n.Value, true
	case !many:
		return "", false
	}
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	}
	var items []string
	for i := 0; i+step <= len(n.Content); i += step {
		if n.Content[i].Kind != yaml.ScalarNode || n.Content[i+step-1].Kind != yaml.ScalarNode {
			return "", false
		}
		item := n.Content[i].Value
		if step == 2 {
			item += "=" + n.Content[i+1].Value
		}
		items = append(items, item)
	}
	return strings.Join(items, ","), true
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("the file is larger than %d bytes: is it the right one?", maxFileBytes)
	}
	return text, nil
}

// nearest finds the known name that a wrong one was probably meant to be.
func nearest(wrong string, known map[string]bool) string {
	best, bestDistance := "", len(wrong)/4+2
	for name := range known {
		d := distance(wrong, name)
		if d < bestDistance || d == bestDistance && best != "" && name < best {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance counts the single-letter edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

package fsm

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCoreIsDeterministic reads the package's source: the state machine may
// know no clock, no chance, no environment and no goroutines.
func TestCoreIsDeterministic(t *testing.T) {
	forbidden := map[string]bool{"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.Sleep": true,
		"time.NewTimer": true, "time.NewTicker": true, "time.AfterFunc": true, "time.Tick": true}
	imports := map[string]bool{"math/rand": true, "math/rand/v2": true, "crypto/rand": true, "os": true, "unsafe": true, "net": true, "runtime": true, "hash/maphash": true}
	for _, name := range sources(t) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if imports[path] || strings.Contains(path, "holdfast-lock") || strings.Contains(path, ".") && name != "adapter.go" {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && forbidden[x.Name+"."+n.Sel.Name] {
					t.Errorf("%s uses %s.%s", fset.Position(n.Pos()), x.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestMapOrderIsNotUsed: the order of a map is chance. The only places that may
// range over one are those where every order gives the same state.
func TestMapOrderIsNotUsed(t *testing.T) {
	allowed := map[string]string{
		"own":    "copies a map into a map",
		"Grants": "promises no order; snapshots and hashes do not depend on it",
	}
	fset := token.NewFileSet()
	var core []*ast.File
	for _, name := range sources(t) {
		if name == "adapter.go" {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		core = append(core, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := conf.Check("fsm", fset, core, info); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range core {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if r, ok := n.(*ast.RangeStmt); ok {
					if _, isMap := info.TypeOf(r.X).Underlying().(*types.Map); isMap {
						seen[fn.Name.Name] = true
						if allowed[fn.Name.Name] == "" {
							t.Errorf("%s: %s ranges over a map", fset.Position(r.Pos()), fn.Name.Name)
						}
					}
				}
				return true
			})
		}
	}
	if len(seen) != len(allowed) {
		t.Errorf("map ranges found in %v, expected in %v", seen, allowed)
	}
}

// sources names the package's files that are not tests.
func sources(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if len(names) < 5 {
		t.Fatalf("only %v to check", names)
	}
	return names
}

package fsm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestCoreIsDeterministic reads the package's source: the state machine may
// know no clock, no chance, no environment and no goroutines.
func TestCoreIsDeterministic(t *testing.T) {
	forbidden := map[string]bool{"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.Sleep": true,
		"time.NewTimer": true, "time.NewTicker": true, "time.AfterFunc": true, "time.Tick": true}
	imports := map[string]bool{"math/rand": true, "math/rand/v2": true, "crypto/rand": true, "os": true, "net": true, "runtime": true, "hash/maphash": true}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range files {
		name := f.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
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
	if checked < 5 {
		t.Errorf("only %d files checked", checked)
	}
}

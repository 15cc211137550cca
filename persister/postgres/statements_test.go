package postgres_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// crossing are statements that are for all tenants by design, by a piece of each, with the reason.
var crossing = map[string]string{
	"pg_class":                                "catalogue",
	"pg_inherits":                             "catalogue",
	"pg_policy":                               "catalogue",
	"to_regclass":                             "catalogue",
	"lock table agent_runs":                   "a migration's lock",
	"and updated_at <= now()":                 "how many runs of all tenants wait to be archived",
	"last_seq > floor_seq":                    "whether a partition may go",
	"update agent_trash t set after_seq":      "upkeep, by the number of the row",
	"delete from agent_trash where id":        "upkeep, by the number of the row",
	"agent_dead_letters group by reason":      "for operators, who see all tenants",
	"delete from agent_dead_letters where id": "for operators, by the letter's hash",
	"update agent_dead_letters l set tries":   "for operators, by the letter's hash",
}

var (
	aboutRuns  = regexp.MustCompile(`agent_(runs|run_lanes|run_events|run_usage|run_messages|run_tool_calls|dead_letters|retention|holds|trash)\b`)
	aStatement = regexp.MustCompile(`(?is)\b(select|insert into|update|delete from|copy|with|truncate)\b`)
)

// TestStatementsNameTheTenant reads the package's source: each statement about rows of tenants names the
// tenant's column, or is one of those that are for all.
func TestStatementsNameTheTenant(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		for _, text := range literals(t, f.Name()) {
			if !aboutRuns.MatchString(text) || !aStatement.MatchString(text) {
				continue
			}
			seen++
			if !strings.Contains(text, "koder_user_id") && !crosses(text) {
				t.Errorf("%s: a statement that does not name koder_user_id:\n%s", f.Name(), text)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d statements were found", seen)
	}
}

func crosses(text string) bool {
	for piece := range crossing {
		if strings.Contains(text, piece) {
			return true
		}
	}
	return false
}

// literals returns the texts of a file; those that are joined by + are one.
func literals(t *testing.T, name string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return s
			}
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		if s := text(e); s != "" {
			texts = append(texts, s)
			return false
		}
		return true
	})
	return texts
}

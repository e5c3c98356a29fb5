package command

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestClusterScripts runs scripts that start clusters of real processes. Each
// has a base port of its own in $BASE and the endpoints in $CLIENTS and $ADMINS.
func TestClusterScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/cluster",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			base, err := freeBasePort()
			if err != nil {
				return err
			}
			noRaceDelay(env)
			env.Setenv("BASE", fmt.Sprint(base))
			env.Setenv("CLIENTS", strings.Join(devAddrs(base, 0), ","))
			env.Setenv("ADMINS", strings.Join(devAddrs(base, 2), ","))
			env.Setenv("HOLDFAST_ENDPOINTS", env.Getenv("CLIENTS"))
			env.Setenv("HOLDFAST_ADMIN_ENDPOINTS", env.Getenv("ADMINS"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "eventually": eventually, "killleader": killLeader, "token": token,
		},
	})
}

func freeBasePort() (int, error) {
	var err error
	for range 100 {
		base := 20000 + 40*rand.IntN(300) // below the ports that systems pick by themselves
		if err = checkPortsFree(base); err == nil {
			return base, nil
		}
	}
	return 0, err
}

// eventually repeats a command until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s: not within 30 s: %v", strings.Join(args, " "), err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// killLeader kills the process of the node that leads: killleader OUTPUT-OF-DEV.
func killLeader(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	leads := make(chan string, 1)
	awaitLeader(ctx, strings.Split(ts.Getenv("ADMINS"), ","), leads)
	leader := <-leads
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var id string
		var pid int
		if n, _ := fmt.Sscanf(line, "%s pid %d", &id, &pid); n == 2 && id == leader {
			p, err := os.FindProcess(pid)
			ts.Check(err)
			ts.Check(p.Kill())
			return
		}
	}
	ts.Fatalf("%s does not name the process of %s", args[0], leader)
}

// token puts the token in the JSON of the last command into a variable.
func token(ts *testscript.TestScript, _ bool, args []string) {
	_, rest, _ := strings.Cut(ts.ReadFile("stdout"), `"token": "`)
	text, _, ok := strings.Cut(rest, `"`)
	if !ok {
		ts.Fatalf("no token in the output")
	}
	ts.Setenv(args[0], text)
}

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// quietFor is how long a repeated line is held back. An unreachable peer makes
// raft log several lines a second otherwise.
const quietFor = 10 * time.Second

// limiter lets one line per key through every quietFor and counts what it held
// back. The zero value is ready.
type limiter struct {
	mu   sync.Mutex
	last map[string]*limited // guarded by mu
}

type limited struct {
	at   time.Time
	held int
}

// maxLimited bounds the limiter's memory; past it the oldest knowledge is dropped.
const maxLimited = 256

// allow says whether to log now, and how many lines were held back since the last.
func (l *limiter) allow(key string) (ok bool, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if e := l.last[key]; e != nil {
		if now.Sub(e.at) < quietFor {
			e.held++
			return false, 0
		}
		held, e.held, e.at = e.held, 0, now
		return true, held
	}
	if l.last == nil || len(l.last) >= maxLimited {
		l.last = make(map[string]*limited)
	}
	l.last[key] = &limited{at: now}
	return true, 0
}

// raftLog adapts slog to the logger that raft wants. Raft's own levels are one
// step too loud for an operator: the node logs gaining and losing leadership
// itself, and an unreachable peer is not an error of this node.
type raftLog struct {
	out     *slog.Logger
	limit   *limiter
	name    string
	implied []any
}

func newRaftLog(out *slog.Logger) hclog.Logger {
	return &raftLog{out: out, limit: &limiter{}, name: "raft"}
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelWarn
	case hclog.Warn:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

func (r *raftLog) Log(level hclog.Level, msg string, args ...any) {
	ctx, sl := context.Background(), slogLevel(level)
	if !r.out.Enabled(ctx, sl) {
		return
	}
	attrs := make([]any, 0, len(args)+len(r.implied)+2)
	key := msg
	for _, group := range [][]any{r.implied, args} {
		for i, a := range group {
			if f, ok := a.(hclog.Format); ok && len(f) > 0 {
				a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
			}
			// The peer is part of the key, so that one dead peer does not hide another.
			if i > 0 && (group[i-1] == "peer" || group[i-1] == "target" || group[i-1] == "server-id") {
				key += fmt.Sprint(" ", a)
			}
			attrs = append(attrs, a)
		}
	}
	if sl > slog.LevelDebug {
		ok, held := r.limit.allow(key)
		if !ok {
			return
		}
		if held > 0 {
			attrs = append(attrs, "repeated", held)
		}
	}
	r.out.Log(ctx, sl, r.name+": "+msg, attrs...)
}

func (r *raftLog) Trace(msg string, args ...any) { r.Log(hclog.Trace, msg, args...) }
func (r *raftLog) Debug(msg string, args ...any) { r.Log(hclog.Debug, msg, args...) }
func (r *raftLog) Info(msg string, args ...any)  { r.Log(hclog.Info, msg, args...) }
func (r *raftLog) Warn(msg string, args ...any)  { r.Log(hclog.Warn, msg, args...) }
func (r *raftLog) Error(msg string, args ...any) { r.Log(hclog.Error, msg, args...) }

func (r *raftLog) enabled(l hclog.Level) bool {
	return r.out.Enabled(context.Background(), slogLevel(l))
}
func (r *raftLog) IsTrace() bool { return false }
func (r *raftLog) IsDebug() bool { return r.enabled(hclog.Debug) }
func (r *raftLog) IsInfo() bool  { return r.enabled(hclog.Info) }
func (r *raftLog) IsWarn() bool  { return r.enabled(hclog.Warn) }
func (r *raftLog) IsError() bool { return r.enabled(hclog.Error) }

func (r *raftLog) ImpliedArgs() []any { return r.implied }

func (r *raftLog) With(args ...any) hclog.Logger {
	c := *r
	c.implied = append(append([]any(nil), r.implied...), args...)
	return &c
}

func (r *raftLog) Name() string { return r.name }

func (r *raftLog) Named(name string) hclog.Logger { return r.ResetNamed(r.name + "." + name) }

func (r *raftLog) ResetNamed(name string) hclog.Logger {
	c := *r
	c.name = name
	return &c
}

// SetLevel does nothing: the level is that of the slog handler.
func (r *raftLog) SetLevel(hclog.Level) {}

func (r *raftLog) GetLevel() hclog.Level {
	if r.IsDebug() {
		return hclog.Debug
	}
	return hclog.Warn
}

func (r *raftLog) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(r.StandardWriter(o), "", 0)
}

func (r *raftLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{r} }

// lineWriter logs each write of the standard logger as one line.
type lineWriter struct{ r *raftLog }

func (w lineWriter) Write(p []byte) (int, error) {
	w.r.Info(string(bytes.TrimRight(p, "\n")))
	return len(p), nil
}

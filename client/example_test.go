package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-lock/holdfast/client"
)

var ctx = context.Background()

func Example() {
	cl, err := client.Open(ctx, []string{"10.0.0.1:7420", "10.0.0.2:7420", "10.0.0.3:7420"})
	if err != nil {
		log.Fatal(err)
	}
	defer cl.Close()

	lock, err := cl.Acquire(ctx, "nightly-report", client.WithWait(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	// The token goes along to whatever is written to, the context ends when the
	// lock may be lost.
	if err := writeReport(lock.Context(), lock.Token()); err != nil {
		log.Print(err)
	}
}

func writeReport(ctx context.Context, token uint64) error { return ctx.Err() }

func ExampleClient_Acquire_errors() {
	var cl *client.Client // from Open
	lock, err := cl.Acquire(ctx, "key")
	var e *client.Error
	switch {
	case err == nil:
		defer lock.Release(ctx)
	case errors.Is(err, client.ErrIndeterminate) && errors.As(err, &e):
		fmt.Println("nobody knows; the key is free again by", e.TakenUntil)
	case errors.Is(err, client.ErrTimeout):
		fmt.Println("somebody else holds it")
	default:
		fmt.Println("not granted:", err)
	}
}

func ExampleClient_Do() {
	var cl *client.Client // from Open
	err := cl.Do(ctx, "migrate", func(ctx context.Context) error {
		return migrate(ctx) // ctx ends when the lock may be lost
	}, client.WithLease(20*time.Second))
	if errors.Is(err, client.ErrNotHeld) {
		fmt.Println("the lock was lost before the work was done")
	}
}

func migrate(ctx context.Context) error { return ctx.Err() }

func ExampleClient_TryAcquire() {
	var cl *client.Client // from Open
	lock, err := cl.TryAcquire(ctx, "leader", client.WithLease(5*time.Second))
	if errors.Is(err, client.ErrTimeout) {
		fmt.Println("somebody else leads")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	<-lock.Lost()
}

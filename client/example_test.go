package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-lock/holdfast/client"
)

func Example() {
	ctx := context.Background()
	cl, err := client.Open(ctx, []string{"127.0.0.1:7420", "127.0.0.1:7430", "127.0.0.1:7440"})
	if err != nil {
		log.Print(err)
		return
	}
	defer cl.Close()

	lock, err := cl.Acquire(ctx, "nightly-report", client.WithWait(30*time.Second), client.WithLease(10*time.Second))
	switch {
	case errors.Is(err, client.ErrIndeterminate):
		// It may have been granted: do not work, and do not count on the key
		// being free either.
		log.Print(err)
		return
	case err != nil:
		log.Print(err) // definitely not granted
		return
	}
	defer lock.Release(ctx)

	writeReport := func(ctx context.Context, fence uint64) error { return nil }
	if err := writeReport(lock.Context(), lock.Token()); err != nil {
		log.Print(err)
	}
}

func ExampleClient_Do() {
	ctx := context.Background()
	cl, err := client.Open(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Print(err)
		return
	}
	defer cl.Close()
	err = cl.Do(ctx, "migrate", func(ctx context.Context) error {
		// ctx ends early enough to stop if the lock cannot be kept.
		return ctx.Err()
	})
	if errors.Is(err, client.ErrNotHeld) {
		fmt.Println("the lock was over before the work was")
	}
}

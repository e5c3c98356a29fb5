// Package client is the official Go client of holdfast, a replicated lock
// service.
//
// Open finds the cluster's leader; Acquire waits for a key and returns a Lock
// that renews itself until it is released or lost:
//
//	cl, err := client.Open(ctx, []string{"10.0.0.1:7420", "10.0.0.2:7420", "10.0.0.3:7420"})
//	...
//	lock, err := cl.Acquire(ctx, "nightly-report", client.WithWait(30*time.Second))
//	...
//	defer lock.Release(ctx)
//	err = report(lock.Context(), lock.Token())
//
// # What an error means
//
// Every failed acquire is one of three things, told apart by errors.Is:
//
//   - definitely not granted: ErrTimeout, ErrBusy, ErrRefused, ErrUnavailable,
//     ErrClosed, or the context's own error;
//   - ErrIndeterminate: the request may have been received and nobody knows
//     whether it was granted. Do not enter the critical section. The key may
//     stay taken until the lease of that grant ends (Error.TakenUntil); the client
//     tries in the background to give such a grant back at once;
//   - nil: granted, and renewed from now on.
//
// # What a lock is worth
//
// The client stops believing in a lock before the servers stop protecting it:
// its end is reckoned from before the request was sent, on a clock that goes on
// while the machine is suspended. Lost is closed and Context ends by then at the
// latest. No lease can stop a write that has already left, so give Token to what
// the lock protects: it rises with each grant, and a resource that remembers the
// highest token it has seen can turn a late holder away.
//
// All times given to this package are durations; on the wire waits and leases are
// whole seconds, rounded up. A Client and a Lock are safe for any number of
// goroutines. Two acquires of one key through one client exclude each other.
package client

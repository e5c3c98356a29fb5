package clustertest

import (
	"errors"
	"fmt"
	"net"
)

// freeOrHeld says whether a key has the token; 0 is a free key.
func freeOrHeld(s Reply, token uint64) error {
	if s.Token != token {
		return fmt.Errorf("the key has token %d, not %d", s.Token, token)
	}
	return nil
}

func waiters(s Reply, want int) error {
	if int(s.Waiters) != want {
		return fmt.Errorf("%d wait, not %d", s.Waiters, want)
	}
	return nil
}

// asTimeout tells whether an error is a deadline's.
func asTimeout(err error, target *net.Error) bool {
	return errors.As(err, target) && (*target).Timeout()
}

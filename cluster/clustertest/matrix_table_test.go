package clustertest

import (
	"github.com/holdfast-lock/holdfast/wire"
)

// expectation is what one cell of the specification says and how it is checked.
type expectation struct {
	says  string
	check func(*cell)
}

// matrix has a check for each cell of the specification's table.
var matrix = map[string]map[string]expectation{
	"`A` wait = 0": {
		free:       {"granted: `A X`", acquireFree(0)},
		held:       {"`T X` at once", acquireAnswered(0, wire.OpTimeout)},
		queued:     {"`T X` at once", acquireAnswered(0, wire.OpTimeout)},
		queueFull:  {"`T X` at once", acquireAnswered(0, wire.OpTimeout)},
		serverFull: {"`B X`; `T X` where the key is held", acquireServerFull(0)},
		follower:   {"`M X`", acquireAnswered(0, wire.OpMoved)},
	},
	"`A` wait > 0": {
		free:       {"granted: `A X`", acquireFree(5)},
		held:       {"joins the tail; later `A X`, or `T X` when the wait ends", acquireQueues},
		queued:     {"joins the tail", acquireQueues},
		queueFull:  {"`B X` at once", acquireAnswered(5, wire.OpBusy)},
		serverFull: {"`B X` at once; joins the tail where the key is held", acquireServerFull(5)},
		follower:   {"`M X`", acquireAnswered(5, wire.OpMoved)},
	},
	"`A` again, same key and owner": {
		free:       {"as any other `A`", acquireAgainFree},
		held:       {"as any other `A`", acquireAgain},
		queued:     {"as any other `A`", acquireAgain},
		queueFull:  {"as any other `A`", acquireAgain},
		serverFull: {"as any other `A`", acquireAgain},
		follower:   {"`M X`", acquireAgainMoved},
	},
	"`R` exact token": {
		held:       {"`R X`", releaseExact},
		queued:     {"`R X`; the head of the queue is granted in the same commit", releaseExact},
		queueFull:  {"`R X`; likewise", releaseExact},
		serverFull: {"`R X`", releaseExact},
		follower:   {"`M X`", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpMoved)},
	},
	"`R` other token": {
		free:       {"`N X`", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpNotHeld)},
		held:       {"`N X`, nothing changes", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpNotHeld)},
		queued:     {"`N X`, nothing changes", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpNotHeld)},
		queueFull:  {"`N X`", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpNotHeld)},
		serverFull: {"`N X`", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpNotHeld)},
		follower:   {"`M X`", answered(wire.Request{Op: wire.OpRelease, Token: otherToken}, wire.OpMoved)},
	},
	"`K` exact token": {
		held:       {"`K X`, the lease starts anew", keepExact},
		queued:     {"`K X`; the queue goes on waiting", keepExact},
		queueFull:  {"`K X`", keepExact},
		serverFull: {"`K X`", keepExact},
		follower:   {"`M X`", answered(wire.Request{Op: wire.OpKeep, Lease: 9, Token: otherToken}, wire.OpMoved)},
	},
	"`K` other token": {
		free:       {"`N X`", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpNotHeld)},
		held:       {"`N X`, nothing changes", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpNotHeld)},
		queued:     {"`N X`, nothing changes", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpNotHeld)},
		queueFull:  {"`N X`", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpNotHeld)},
		serverFull: {"`N X`", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpNotHeld)},
		follower:   {"`M X`", answered(wire.Request{Op: wire.OpKeep, Lease: 99, Token: otherToken}, wire.OpMoved)},
	},
	"`C` of a queued acquire X": {
		held:       {"`T X`", cancelQueued},
		queued:     {"`T X`", cancelQueued},
		queueFull:  {"`T X`", cancelQueued},
		serverFull: {"`T X`", cancelQueuedServerFull},
		follower:   {"no reply (section 13)", cancelNothing},
	},
	"`C` of anything else": {
		free: {"no reply", cancelNothing}, held: {"no reply", cancelNothing}, queued: {"no reply", cancelNothing},
		queueFull: {"no reply", cancelNothing}, serverFull: {"no reply", cancelNothing}, follower: {"no reply", cancelNothing},
	},
	"`Q`": {
		free:       {"`S X`, token 0", query},
		held:       {"`S X` with token, holder and rest of the lease", query},
		queued:     {"`S X`, with the number of waiters too", query},
		queueFull:  {"`S X`", query},
		serverFull: {"`S X`", query},
		follower:   {"`M X`", answered(wire.Request{Op: wire.OpQuery}, wire.OpMoved)},
	},
	"lease runs out": {
		held:       {"the grant ends", leaseRunsOut},
		queued:     {"the head of the queue is granted in the same commit", leaseRunsOut},
		queueFull:  {"likewise", leaseRunsOut},
		serverFull: {"likewise", leaseRunsOut},
	},
	"session closes": {
		held:       {"its grants stay until release or expiry", sessionCloses},
		queued:     {"its queued acquires leave the queue", sessionCloses},
		queueFull:  {"likewise", sessionCloses},
		serverFull: {"likewise", sessionCloses},
	},
}

//go:build !race

package clustertest

// raceDetector says that this test, and so the program it drives, is built with
// the race detector.
const raceDetector = false

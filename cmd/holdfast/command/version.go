package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/wire"
)

// version is set by the linker from git describe; see the Makefile.
var version = "dev"

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisVersion() versionInfo {
	v := versionInfo{
		Version: version, Protocol: wire.Version,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}

func (a *app) newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: exactArgs()}
	out := a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := thisVersion()
		return a.print(*out, v, func() error {
			_, err := fmt.Fprintf(a.Out, "holdfast %s, protocol %d, %s %s\n", v.Version, v.Protocol, v.Go, v.Platform)
			return err
		})
	}
	return cmd
}

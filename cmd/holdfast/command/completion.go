package command

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a script that completes holdfast's commands and flags.

  bash:  source <(holdfast completion bash)
  zsh:   holdfast completion zsh > "${fpath[1]}/_holdfast"
  fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish`,
		Args:      exactArgs("SHELL"),
		ValidArgs: shells,
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return a.root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return a.root.GenZshCompletion(a.Out)
			case "fish":
				return a.root.GenFishCompletion(a.Out, true)
			case "powershell":
				return a.root.GenPowerShellCompletionWithDesc(a.Out)
			}
			return usagef("no completion for %q: use one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

package command

import "github.com/spf13/cobra"

func helpConfiguration() *cobra.Command {
	return &cobra.Command{
		Use:   "configuration",
		Short: "Flags, environment variables and the configuration file",
		Long: `Every setting of "holdfast serve" is a flag, an environment variable and a key of
a YAML file, all by one name:

  flag         --node-id n1
  environment  HOLDFAST_NODE_ID=n1
  file         node-id: n1

A flag goes before the environment, the environment before the file, the file
before the default. The file is named by --config or HOLDFAST_CONFIG. A list is
written with commas, or in the file also as a YAML list, or as a mapping:

  peers:
    n1: 10.0.0.1:7421
    n2: 10.0.0.2:7421
    n3: 10.0.0.3:7421

A name that is unknown, in the file or as a HOLDFAST_* variable, is an error. The
variables that "holdfast lock" gives its command (HOLDFAST_KEY, HOLDFAST_TOKEN,
HOLDFAST_LEASE) and those that Kubernetes makes for services (such as
HOLDFAST_SERVICE_HOST) are passed over. A variable that is set to nothing counts as
not set.

"holdfast serve --check-config" validates all of it and exits, with 78 if something
is wrong.
`,
	}
}

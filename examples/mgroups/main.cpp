// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

#include "inspect.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Looks into torch_dist, PyTorch DCP and safetensors checkpoints."};
  app.set_version_flag("--version",
                       mgroups::concat(MGROUPS_VERSION_MAJOR, '.', MGROUPS_VERSION_MINOR, '.', MGROUPS_VERSION_PATCH));
  app.require_subcommand(1);
  app.footer("Exit status: 0 done, 1 the checkpoint cannot be read, 2 wrong usage.");

  InspectOptions options;
  CLI::App& inspect_command = *app.add_subcommand("inspect", "List tensors and objects: dtype, shape, shards.");
  inspect_command.add_option("path", options.path, "a checkpoint directory, a safetensors file, or a folder of such files")
      ->required();
  inspect_command.add_option("keys", options.keys, "only these keys");
  inspect_command.add_flag("--json", options.json, "print JSON");
  inspect_command.add_flag("--sha256", options.sha256, "read every tensor and print the SHA-256 of its row-major bytes");
  inspect_command.footer(
      "Examples:\n  mgroups inspect run/iter_0000100\n  mgroups inspect run/iter_0000100 --json --sha256 embedding.weight\n"
      "  mgroups inspect model.safetensors");
  inspect_command.callback([&] { inspect(options); });

  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << "mgroups: " << error.what() << "\n";
    return 1;
  }
}

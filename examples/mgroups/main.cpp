// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <mgroups/core/text.hpp>
#include <mgroups/version.hpp>

#include "verbs.hpp"

int main(int argc, char** argv) {
  CLI::App app{"Looks into torch_dist, PyTorch DCP and safetensors checkpoints, verifies and converts them."};
  app.set_version_flag("--version",
                       mgroups::concat(MGROUPS_VERSION_MAJOR, '.', MGROUPS_VERSION_MINOR, '.', MGROUPS_VERSION_PATCH));
  app.require_subcommand(1);
  app.footer("Exit status: 0 done, 1 the checkpoint has faults or cannot be read or written, 2 wrong usage.");

  const char* const path_help = "a checkpoint directory, a safetensors file, or a folder of such files";
  InspectOptions options;
  CLI::App& inspect_command = *app.add_subcommand("inspect", "List tensors and objects: dtype, shape, shards.");
  inspect_command.add_option("path", options.path, path_help)->required();
  inspect_command.add_option("keys", options.keys, "only these keys");
  inspect_command.add_flag("--json", options.json, "print JSON");
  inspect_command.add_flag("--sha256", options.sha256, "read every tensor and print the SHA-256 of its row-major bytes");
  inspect_command.add_flag("--values", options.values, "read every object and the common state and print their values");
  inspect_command.footer(
      "Examples:\n  mgroups inspect run/iter_0000100\n  mgroups inspect run/iter_0000100 --json --sha256 embedding.weight\n"
      "  mgroups inspect model.safetensors");
  inspect_command.callback([&] { inspect(options); });

  VerifyOptions verify_options;
  bool whole = true;
  CLI::App& verify_command = *app.add_subcommand("verify", "Read all of a checkpoint and print one line for each fault.");
  verify_command.add_option("path", verify_options.path, path_help)->required();
  verify_command.add_flag("--json", verify_options.json, "print JSON");
  verify_command.footer("Examples:\n  mgroups verify run/iter_0000100\n  mgroups verify run/iter_0000100 --json");
  verify_command.callback([&] { whole = verify(verify_options); });

  ConvertOptions convert_options;
  CLI::App& convert_command =
      *app.add_subcommand("convert", "Write a checkpoint again in another format, tensor by tensor.");
  convert_command.add_option("source", convert_options.source, path_help)->required();
  convert_command
      .add_option("target", convert_options.target,
                  "a directory, replaced as a whole; for safetensors also NAME.safetensors")
      ->required();
  convert_command.add_option("--to", convert_options.format, "torch_dist, dcp or safetensors")
      ->check(CLI::IsMember({"torch_dist", "dcp", "safetensors"}))
      ->capture_default_str();
  convert_command.add_option("--max-file-size", convert_options.most_bytes, "of one safetensors file: 500MB, 5GB ...")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("5GB");
  convert_command.add_flag("--drop-objects", convert_options.drop_objects, "leave out what the target cannot hold");
  convert_command.add_flag("--json", convert_options.json, "print JSON");
  convert_command.footer(
      "Examples:\n  mgroups convert run/iter_0000100 model --to safetensors --drop-objects\n"
      "  mgroups convert model.safetensors checkpoint --to dcp");
  convert_command.callback([&] { convert(convert_options); });

  try {
    app.parse(argc, argv);
    return whole ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << "mgroups: " << error.what() << "\n";
    return 1;
  }
}

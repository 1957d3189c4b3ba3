// `weir cp` and `weir serve-files`: files and trees to a peer's directory and back.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/copier.h"
#include "apps/weir/copy_place.h"
#include "apps/weir/file_service.h"
#include "apps/weir/format.h"
#include "apps/weir/local_files.h"
#include "apps/weir/path.h"
#include "apps/weir/placed_files.h"
#include "apps/weir/process.h"
#include "apps/weir/remote_files.h"
#include "apps/weir/security_options.h"
#include "weir/pool.h"

namespace weir::command {

namespace {

const std::map<std::string, ShowProgress> kProgress{
    {"auto", ShowProgress::on_terminal}, {"never", ShowProgress::never}, {"always", ShowProgress::always}};
constexpr std::chrono::milliseconds kLongestSleep{100};

struct CopyCommandOptions : SecurityOptions {
  std::vector<std::string> places;  // the last one is where to
  std::string name;
  bool recursive = false;
  bool no_check = false;
  ShowProgress progress = ShowProgress::on_terminal;
};

struct ServeOptions : SecurityOptions {
  std::string listen;
  std::string root;
  bool read_only = false;
  std::uint64_t largest_bytes = std::uint64_t{1} << 40;
  int threads = 4;
};

// A file or directory of this machine as a root and a name in it.
struct LocalPlace {
  std::unique_ptr<LocalFiles> opened;
  std::unique_ptr<PlacedFiles> files;
  std::string path;
};

LocalPlace open_here(const std::string& root, const LocalFiles::Options& options) {
  auto opened = LocalFiles::open(root, options);
  if (!opened) fail(fmt::format("here: {}", opened.error().message()));
  LocalPlace place;
  place.opened = std::move(*opened);
  place.files = std::make_unique<PlacedFiles>(*place.opened, fmt::format("here, in {}", shown(root)));
  return place;
}

LocalPlace open_source(const std::string& path) {
  std::error_code error;
  std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) fail(fmt::format("here: {}: {}", shown(path), error.message()));
  LocalPlace place = open_here(real.parent_path().string(), {.read_only = true});
  place.path = real.filename().string();
  return place;
}

LocalPlace open_target(const std::string& path) {
  std::error_code error;
  std::filesystem::path target(path);
  if (std::filesystem::is_directory(target, error)) return open_here(path, {});
  std::filesystem::path parent = target.parent_path();
  LocalPlace place = open_here(parent.empty() ? "." : parent.string(), {});
  place.path = target.filename().string();
  return place;
}

// Where a source goes: into a directory under its own name, or under the name that was given.
std::string place_in(Files& to, const std::string& path, const std::string& name, bool has_several) {
  Result<FileInfo> info = to.look(path);
  if (!info) fail(info.error().message());
  if (info->kind == FileKind::directory) return name.empty() ? path : join(path, name);
  if (has_several) fail(fmt::format("{} is not a directory, and there is more than one thing to copy", shown(path)));
  return path;
}

std::string files_in(const CopyReport& report) { return counted(report.files, "file"); }

// Of a copy that did not get to its end.
[[noreturn]] void fail_halfway(const CopyReport& report, std::string_view why, int exit_code) {
  std::string until_then;
  if (report.files != 0 || report.sent_bytes != 0) {
    until_then = fmt::format(" after {} and {}", files_in(report), in_bytes(report.sent_bytes));
  }
  fail(fmt::format("{}{}; the same command goes on where it stopped", why, until_then), exit_code);
}

void finish_report(const CopyReport& report, const CopyCommandOptions& options, double seconds) {
  if (stop_requested()) fail_halfway(report, "interrupted", kInterrupted);
  if (report.fatal) fail_halfway(report, printable(report.fatal->message()), kFailed);
  if (report.files != 0 || report.failed == 0) {
    fmt::print("copied {}, {} in {:.2f} s, {:.0f} MB/s{}\n", files_in(report), in_bytes(report.sent_bytes), seconds,
               static_cast<double>(report.sent_bytes) * 1e-6 / seconds, options.no_check ? "" : "; checked");
    if (report.there_before_bytes != 0) fmt::print("{} were there already\n", in_bytes(report.there_before_bytes));
    std::fflush(stdout);
  }
  std::string missing;
  if (report.failed != 0) missing = fmt::format("{} not copied", with_commas(report.failed));
  if (report.skipped != 0) {
    missing += fmt::format("{}{} left out, as links, pipes and devices are", missing.empty() ? "" : ", ",
                           with_commas(report.skipped));
  }
  if (!missing.empty()) fail(fmt::format("the copy is not complete: {}", missing));
}

Pool open_pool(const SecurityOptions& options, Config config) {
  apply_security(options, config);
  auto witness = std::make_shared<Witness>();
  config.subscriber = witness;
  Pool pool = value_or_fail(Pool::open(std::move(config)));
  for (const std::string& sentence : witness->degradations()) note(sentence);
  return pool;
}

void run_copy(const CopyCommandOptions& options) {
  catch_stop_signals();
  std::vector<CopyPlace> sources;
  for (const std::string& text : options.places) sources.push_back(parse_place(text));
  const CopyPlace target = sources.back();
  sources.pop_back();
  const std::string& address = target.is_remote() ? target.address : sources.front().address;
  for (const CopyPlace& source : sources) {
    if (source.is_remote() == target.is_remote()) {
      fail_use("one side is here and the other at a peer, ADDR:PORT:PATH; `cp` copies within this machine");
    }
    if (source.is_remote() && source.address != address) fail_use("all sources must be at one peer");
  }

  Pool pool = open_pool(options, {});
  Peer peer = pool.peer(address, {.name = options.name});
  if (auto ready = peer.ready().get(); !ready) {
    fail(fmt::format("cannot reach {}", printable(with_address(address, ready.error().message()))),
         exit_code_of(ready.error()));
  }
  RemoteFiles peers_files(peer);
  PlacedFiles remote(peers_files, address);

  std::int64_t began_ns = now_ns();
  CopyReport report;
  {
    std::vector<LocalPlace> opened;  // as long as they are read from
    LocalPlace local_target;
    if (!target.is_remote()) local_target = open_target(target.path);
    Files& to = target.is_remote() ? static_cast<Files&>(remote) : *local_target.files;
    const std::string to_path = target.is_remote() ? target.path : local_target.path;
    CopyProgress progress(options.progress);
    Copier copier(to, {.recursive = options.recursive, .check = !options.no_check}, progress);
    for (const CopyPlace& source : sources) {
      const std::string place = place_in(to, to_path, name_of(source), sources.size() > 1);
      if (source.is_remote()) {
        copier.plan(remote, source.path, place);
      } else {
        opened.push_back(open_source(source.path));
        copier.plan(*opened.back().files, opened.back().path, place);
      }
    }
    report = copier.run();
  }
  // Everything was answered; a peer that does not hear of our leaving finds out by itself.
  (void)pool.close(std::chrono::milliseconds(500));
  finish_report(report, options, static_cast<double>(now_ns() - began_ns) * 1e-9);
}

void run_serve(const ServeOptions& options) {
  catch_stop_signals();
  std::shared_ptr<Files> files = value_or_fail(
      LocalFiles::open(options.root, {.read_only = options.read_only, .largest_bytes = options.largest_bytes}));
  Pool pool = open_pool(options, {.listen = options.listen, .executor_threads = options.threads});
  value_or_fail(serve_files(pool, files));
  fmt::print("listening on {}, serving {}{}\n", pool.listen_address(), shown(options.root),
             options.read_only ? " to be read only" : "");
  std::fflush(stdout);
  while (!stop_requested()) std::this_thread::sleep_for(kLongestSleep);
  (void)pool.close(std::chrono::milliseconds(500));
}

}  // namespace

void add_copy_commands(CLI::App& app) {
  auto copy = std::make_shared<CopyCommandOptions>();
  CLI::App* command = app.add_subcommand("cp", "Copy files and trees to a peer's directory and back");
  command
      ->add_option("places", copy->places,
                   "What to copy, and last where to. ADDR:PORT:PATH is at a peer that runs `weir serve-files`; PATH is "
                   "relative to what it serves")
      ->required()
      ->expected(2, 1 << 20)
      ->type_name("FROM... TO");
  command->add_flag("-r,--recursive", copy->recursive, "Directories with all that is in them");
  command->add_flag("--no-check", copy->no_check, "Do not read back and compare what was written");
  command->add_option("--progress", copy->progress, "A line that says how far it is")
      ->transform(CLI::CheckedTransformer(kProgress).description("auto|never|always"))
      ->default_str("auto");
  command->add_option("--name", copy->name, "What the peer's certificate must prove (default: its address)")
      ->type_name("NAME");
  add_security(*command, *copy);
  command->footer(
      "A copy that was interrupted goes on where it stopped, when the same command is given again. Until a file is\n"
      "complete it has another name, .weir-part-..., beside where it will be. A part that is never completed, because "
      "the\n"
      "original changed or the command was not given again, stays there until somebody removes it.\n"
      "A link that is named is followed. Of a tree, links, pipes and devices are left out: each is told, and the exit\n"
      "code is 1 then.\n"
      "Example:\n"
      "  weir serve-files --listen 127.0.0.1:4433 --root /srv/files --development ./development &\n"
      "  weir cp -r photos 127.0.0.1:4433:backup --development ./development\n"
      "  weir cp 127.0.0.1:4433:backup/1.jpg . --development ./development\n"
      "A target that is not there becomes the copy; into a directory that is there, the copy goes under its own name.");
  command->callback([copy] {
    choose_security(*copy);
    if (!copy->name.empty() && copy->identity.empty()) fail_use("--name has a meaning only with --identity");
    run_copy(*copy);
  });

  auto serve = std::make_shared<ServeOptions>();
  command = app.add_subcommand("serve-files", "Serve a directory to `weir cp` until Ctrl-C");
  command->add_option("--listen", serve->listen, "Address to serve, such as 0.0.0.0:4433 (port 0: any)")
      ->required()
      ->type_name("ADDR");
  command->add_option("--root", serve->root, "The directory; nothing outside of it can be named, also not by links")
      ->required()
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  command->add_flag("--read-only", serve->read_only, "Nothing is written");
  command->add_option("--largest", serve->largest_bytes, "Largest file to take")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->type_name("BYTES")
      ->capture_default_str();
  command->add_option("--threads", serve->threads, "Threads that read and write")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  add_security(*command, *serve);
  command->footer(
      "Whoever has the secret, or a certificate of the same authority, may read, and without --read-only write.\n"
      "--largest bounds one file, nothing bounds all of them: where that matters, serve a file system of its own. "
      "Copies\n"
      "that were not completed leave files behind, .weir-part-..., which are not served and not removed.");
  command->callback([serve] {
    choose_security(*serve);
    run_serve(*serve);
  });
}

}  // namespace weir::command

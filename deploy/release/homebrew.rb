class Antiphon < Formula
  desc "Reverse proxy for LLM provider APIs that gives every tool call one answer"
  homepage "@homepage@"
  version "@version@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "@url_macos_aarch64@"
      sha256 "@sha256_macos_aarch64@"
    end
    on_intel do
      url "@url_macos_x86_64@"
      sha256 "@sha256_macos_x86_64@"
    end
  end

  on_linux do
    on_arm do
      url "@url_linux_aarch64@"
      sha256 "@sha256_linux_aarch64@"
    end
    on_intel do
      url "@url_linux_x86_64@"
      sha256 "@sha256_linux_x86_64@"
    end
  end

  def install
    bin.install "antiphon"
    # Asked of the binary: an archive that was packed on another platform has neither.
    (man1/"antiphon.1").write Utils.safe_popen_read(bin/"antiphon", "man")
    generate_completions_from_executable(bin/"antiphon", "completions", shells: [:bash, :zsh, :fish])
    pkgshare.install "config.example.toml"
  end

  service do
    run [opt_bin/"antiphon", "serve"]
    keep_alive crashed: true
    log_path var/"log/antiphon.log"
    error_log_path var/"log/antiphon.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/antiphon --version")
  end
end

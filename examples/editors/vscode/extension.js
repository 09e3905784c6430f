// Starts `dplc lsp` for rule files.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const command = workspace.getConfiguration("dplc").get("path");
  const server = { command, args: ["lsp"] };
  client = new LanguageClient("dplc", "dplc rules", server, { documentSelector: [{ language: "dplc-rule" }] });
  return client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };

-- Rule files of dplc: the language server, its lenses (grl runs the one of a line), comments, widths.
vim.filetype.add({ extension = { rw = "dplc-rule" } })
vim.lsp.config("dplc", { cmd = { "dplc", "lsp" }, filetypes = { "dplc-rule" }, root_markers = { "pipeline.rw", ".git" } })
vim.lsp.enable("dplc")
vim.api.nvim_create_autocmd("FileType", {
  pattern = "dplc-rule",
  callback = function()
    vim.bo.commentstring = "# %s"
    vim.bo.shiftwidth, vim.bo.expandtab = 4, true
  end,
})
vim.api.nvim_create_autocmd({ "LspAttach", "BufEnter", "InsertLeave" }, {
  pattern = "*.rw",
  callback = function(event)
    vim.lsp.codelens.refresh({ bufnr = event.buf })
    vim.keymap.set("n", "grl", vim.lsp.codelens.run, { buffer = event.buf, desc = "run the lens of this line" })
  end,
})

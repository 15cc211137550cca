// One configuration for all pages. `npm start` serves them at http://127.0.0.1:3000, and passes on to agentstream what they ask.
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const pages = ["ai-sdk", "ai-sdk-6", "ag-ui", "tanstack", "use-run"];
const agentstream = process.env.AGENTSTREAM ?? "http://127.0.0.1:8080";

export default {
  // Outside of this repository: npm install agentstream.
  resolve: {
    alias: {
      "agentstream/react": at("../../clients/ts/src/react/index.ts"),
      agentstream: at("../../clients/ts/src/index.ts"),
    },
    dedupe: ["react", "react-dom"],
  },
  server: { host: "127.0.0.1", port: 3000, strictPort: true, proxy: { "/v1": agentstream }, fs: { allow: [at("../..")] } },
  build: { rollupOptions: { input: [at("index.html"), ...pages.map((page) => at(`${page}/index.html`))] }, chunkSizeWarningLimit: 2000 },
  oxc: { jsx: { runtime: "automatic" } },
};

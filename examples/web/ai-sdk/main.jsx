import { Chat, useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { open } from "./page.jsx";

open({ Chat, useChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses });

import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai-6";
import { Chat, useChat } from "ai-sdk-react-3";
import { open } from "../ai-sdk/page.jsx";

open({ Chat, useChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses });
